// Layers in plain loops over doubles, by which the built-in networks are checked: nothing here knows the operators, the
// builder or the interpreter. Images are batch x channels x height x width, sequences batch x length x hidden.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/model.h"
#include "compiler/graph/network.h"
#include "compiler/graph/passes.h"
#include "testing.h"

namespace diapason::reference {

struct Values {
  Ints shape;
  std::vector<double> v;
  Values() = default;
  explicit Values(Ints s) : shape(std::move(s)), v(Count(0, shape.size())) {}
  size_t Count(size_t first, size_t last) const {
    size_t n = 1;
    for (size_t i = first; i < last; ++i) n *= static_cast<size_t>(shape[i]);
    return n;
  }
  size_t last() const { return static_cast<size_t>(shape.back()); }
  size_t rows() const { return v.size() / last(); }
};

inline Values ValuesOf(const Array& array) {
  Values x(array.shape);
  for (size_t i = 0; i < x.v.size(); ++i) x.v[i] = array.at(static_cast<int64_t>(i));
  return x;
}

// x with the dimensions in another order: dimension d of the result is dimension perm[d] of x.
inline Values Permuted(const Values& x, const std::vector<int>& perm) {
  Ints shape;
  for (int d : perm) shape.push_back(x.shape[d]);
  Values y(shape);
  for (size_t i = 0; i < y.v.size(); ++i) {
    size_t rest = i, from = 0;
    for (int d = static_cast<int>(perm.size()) - 1; d >= 0; --d) {
      const size_t at = rest % static_cast<size_t>(shape[d]);
      rest /= static_cast<size_t>(shape[d]);
      from += at * x.Count(perm[d] + 1, x.shape.size());
    }
    y.v[i] = x.v[from];
  }
  return y;
}

inline Values ChannelsFirst(const Values& image, Layout layout) {
  return layout == Layout::kNHWC ? Permuted(image, {0, 3, 1, 2}) : image;
}

// The constants of a network, by name.
class Weights {
 public:
  explicit Weights(const Network& network, Layout layout = Layout::kNHWC) : layout_(layout) {
    for (const Tensor& tensor : network.tensors) {
      if (!tensor.constant()) continue;
      EXPECT_TRUE(arrays_.emplace(tensor.name, tensor.data.get()).second) << tensor.name << " twice";
    }
  }
  bool has(const std::string& name) const { return arrays_.count(name) != 0; }
  Values operator[](const std::string& name) const {
    if (!has(name)) {
      ADD_FAILURE() << "no constant " << name;
      return Values(Ints{1});
    }
    return ValuesOf(*arrays_.at(name));
  }
  // Output channels x input channels x height x width.
  Values Kernel(const std::string& name) const {
    return layout_ == Layout::kNHWC ? Permuted((*this)[name], {3, 2, 0, 1}) : (*this)[name];
  }
  Layout layout() const { return layout_; }

 private:
  Layout layout_;
  std::map<std::string, const Array*> arrays_;
};

template <typename F>
Values Map(Values x, F function) {
  for (double& value : x.v) value = function(value);
  return x;
}
inline double Relu(double x) { return x > 0 ? x : 0; }
inline double Relu6(double x) { return std::fmin(Relu(x), 6); }
inline double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double Silu(double x) { return x * Sigmoid(x); }
inline double HardSigmoid(double x) { return Relu6(x + 3) / 6; }
inline double HardSwish(double x) { return x * HardSigmoid(x); }
inline double Gelu(double x) { return 0.5 * x * std::erfc(-x * M_SQRT1_2); }
inline double GeluTanh(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }

// Of the same shape, or `b` repeated over the leading dimensions of a.
inline Values Plus(Values a, const Values& b) {
  for (size_t i = 0; i < a.v.size(); ++i) a.v[i] += b.v[i % b.v.size()];
  return a;
}

inline Values Linear(const Values& x, const Values& w, const Values* bias = nullptr) {
  Ints shape = x.shape;
  shape.back() = w.shape[1];
  Values y(shape);
  for (size_t row = 0; row < x.rows(); ++row) {
    for (size_t column = 0; column < y.last(); ++column) {
      double sum = bias ? bias->v[column] : 0;
      for (size_t k = 0; k < x.last(); ++k) sum += x.v[row * x.last() + k] * w.v[k * y.last() + column];
      y.v[row * y.last() + column] = sum;
    }
  }
  return y;
}

// The layer of that name, with a bias where there is one.
inline Values Linear(const Weights& w, const Values& x, const std::string& name) {
  if (!w.has(name + ".bias")) return Linear(x, w[name + ".weight"]);
  const Values bias = w[name + ".bias"];
  return Linear(x, w[name + ".weight"], &bias);
}

inline Values Normalized(Values x, bool centred, double epsilon) {
  for (size_t row = 0; row < x.rows(); ++row) {
    double* v = x.v.data() + row * x.last();
    double mean = 0, squares = 0;
    for (size_t i = 0; i < x.last(); ++i) mean += centred ? v[i] / static_cast<double>(x.last()) : 0;
    for (size_t i = 0; i < x.last(); ++i) squares += (v[i] - mean) * (v[i] - mean) / static_cast<double>(x.last());
    for (size_t i = 0; i < x.last(); ++i) v[i] = (v[i] - mean) / std::sqrt(squares + epsilon);
  }
  return x;
}

inline Values LayerNorm(const Weights& w, const Values& x, const std::string& name, double epsilon) {
  Values y = Normalized(x, true, epsilon);
  const Values scale = w[name + ".weight"];
  for (size_t i = 0; i < y.v.size(); ++i) y.v[i] *= scale.v[i % scale.v.size()];
  return Plus(y, w[name + ".bias"]);
}

inline Values RmsNorm(const Weights& w, const Values& x, const std::string& name, double epsilon) {
  Values y = Normalized(x, false, epsilon);
  const Values scale = w[name + ".weight"];
  for (size_t i = 0; i < y.v.size(); ++i) y.v[i] *= scale.v[i % scale.v.size()];
  return y;
}

inline Values Embedding(const Values& table, const Values& ids) {
  Ints shape = ids.shape;
  shape.push_back(table.shape[1]);
  Values y(shape);
  for (size_t i = 0; i < y.v.size(); ++i)
    y.v[i] = table.v[static_cast<size_t>(ids.v[i / y.last()]) * y.last() + i % y.last()];
  return y;
}

// Elements [start, end) of the last dimension.
inline Values Columns(const Values& x, size_t start, size_t end) {
  Ints shape = x.shape;
  shape.back() = static_cast<int64_t>(end - start);
  Values y(shape);
  for (size_t i = 0; i < y.v.size(); ++i) y.v[i] = x.v[i / y.last() * x.last() + start + i % y.last()];
  return y;
}

inline void Softmax(std::vector<double>& row) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double x : row) top = std::fmax(top, x);
  for (double& x : row) sum += x = std::exp(x - top);
  for (double& x : row) x /= sum;
}

// What is added to the score of query i and key j of an element of the batch and a head.
using Bias = std::function<double(size_t batch, size_t head, size_t i, size_t j)>;

struct Heads {
  size_t count;
  double scale;  // of scores
};

// q is batch x queries x (heads * size), k and v batch x keys x (groups * size).
inline Values Attention(const Values& q, const Values& k, const Values& v, const Heads& all, const Bias& bias) {
  const size_t heads = all.count;
  const double scale = all.scale;
  const size_t size = q.last() / heads, groups = k.last() / size;
  const size_t queries = static_cast<size_t>(q.shape[1]), keys = static_cast<size_t>(k.shape[1]);
  Values y(q.shape);
  for (size_t n = 0; n < static_cast<size_t>(q.shape[0]); ++n) {
    for (size_t head = 0; head < heads; ++head) {
      const size_t group = head / (heads / groups);
      for (size_t i = 0; i < queries; ++i) {
        std::vector<double> weights(keys);
        for (size_t j = 0; j < keys; ++j) {
          double dot = 0;
          for (size_t d = 0; d < size; ++d) {
            dot +=
                q.v[(n * queries + i) * q.last() + head * size + d] * k.v[(n * keys + j) * k.last() + group * size + d];
          }
          weights[j] = dot * scale + bias(n, head, i, j);
        }
        Softmax(weights);
        for (size_t j = 0; j < keys; ++j) {
          for (size_t d = 0; d < size; ++d) {
            y.v[(n * queries + i) * y.last() + head * size + d] +=
                weights[j] * v.v[(n * keys + j) * v.last() + group * size + d];
          }
        }
      }
    }
  }
  return y;
}

struct ConvShape {
  int64_t stride = 1, pad_h = 0, pad_w = 0, group = 1;
};

inline Values Conv(const Values& x, const Values& w, const Values* bias, const ConvShape& c) {
  const int64_t height = (x.shape[2] + 2 * c.pad_h - w.shape[2]) / c.stride + 1,
                width = (x.shape[3] + 2 * c.pad_w - w.shape[3]) / c.stride + 1;
  const int64_t in = w.shape[1], out = w.shape[0];
  Values y({x.shape[0], out, height, width});
  size_t at = 0;
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t o = 0; o < out; ++o) {
      const int64_t first = o / (out / c.group) * in;
      for (int64_t i = 0; i < height; ++i) {
        for (int64_t j = 0; j < width; ++j) {
          double sum = bias ? bias->v[o] : 0;
          for (int64_t k = 0; k < in; ++k) {
            for (int64_t dy = 0; dy < w.shape[2]; ++dy) {
              for (int64_t dx = 0; dx < w.shape[3]; ++dx) {
                const int64_t row = i * c.stride + dy - c.pad_h, column = j * c.stride + dx - c.pad_w;
                if (row < 0 || row >= x.shape[2] || column < 0 || column >= x.shape[3]) continue;
                sum += x.v[((n * x.shape[1] + first + k) * x.shape[2] + row) * x.shape[3] + column] *
                       w.v[((o * in + k) * w.shape[2] + dy) * w.shape[3] + dx];
              }
            }
          }
          y.v[at++] = sum;
        }
      }
    }
  }
  return y;
}

// The convolution of that name, with padding that keeps odd kernels' images, or none.
inline Values Conv(const Weights& w, const Values& x, const std::string& name, int64_t stride = 1, bool padded = true) {
  const Values kernel = w.Kernel(name + ".weight");
  ConvShape shape{stride, padded ? (kernel.shape[2] - 1) / 2 : 0, padded ? (kernel.shape[3] - 1) / 2 : 0,
                  x.shape[1] / kernel.shape[1]};
  if (!w.has(name + ".bias")) return Conv(x, kernel, nullptr, shape);
  const Values bias = w[name + ".bias"];
  return Conv(x, kernel, &bias, shape);
}

// Along the second dimension.
inline Values BatchNorm(const Weights& w, Values x, const std::string& name) {
  const Values scale = w[name + ".weight"], bias = w[name + ".bias"], mean = w[name + ".running_mean"],
               var = w[name + ".running_var"];
  const size_t pixels = x.Count(2, x.shape.size());
  for (size_t i = 0; i < x.v.size(); ++i) {
    const size_t c = i / pixels % static_cast<size_t>(x.shape[1]);
    x.v[i] = (x.v[i] - mean.v[c]) / std::sqrt(var.v[c] + 1e-5) * scale.v[c] + bias.v[c];
  }
  return x;
}

// The largest of each window, or, of an average, the mean with zeros of the padding.
inline Values Pool(const Values& x, int64_t kernel, int64_t stride, int64_t pad, bool average = false) {
  const int64_t height = (x.shape[2] + 2 * pad - kernel) / stride + 1,
                width = (x.shape[3] + 2 * pad - kernel) / stride + 1;
  Values y({x.shape[0], x.shape[1], height, width});
  size_t at = 0;
  for (int64_t plane = 0; plane < x.shape[0] * x.shape[1]; ++plane) {
    for (int64_t i = 0; i < height; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        double top = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t row = i * stride - pad; row < i * stride - pad + kernel; ++row) {
          for (int64_t column = j * stride - pad; column < j * stride - pad + kernel; ++column) {
            if (row < 0 || row >= x.shape[2] || column < 0 || column >= x.shape[3]) continue;
            const double value = x.v[(plane * x.shape[2] + row) * x.shape[3] + column];
            top = std::fmax(top, value);
            sum += value;
          }
        }
        y.v[at++] = average ? sum / static_cast<double>(kernel * kernel) : top;
      }
    }
  }
  return y;
}

// Means of the planes: batch x channels.
inline Values Means(const Values& x) {
  Values y({x.shape[0], x.shape[1]});
  const size_t pixels = x.Count(2, x.shape.size());
  for (size_t i = 0; i < x.v.size(); ++i) y.v[i / pixels] += x.v[i] / static_cast<double>(pixels);
  return y;
}

// Along the second dimension.
inline Values Joined(const std::vector<Values>& parts) {
  Ints shape = parts[0].shape;
  shape[1] = 0;
  for (const Values& part : parts) shape[1] += part.shape[1];
  Values y;
  y.shape = shape;
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (const Values& part : parts) {
      const size_t size = part.Count(1, part.shape.size());
      y.v.insert(y.v.end(), part.v.begin() + n * size, part.v.begin() + (n + 1) * size);
    }
  }
  return y;
}

inline void ExpectIs(const Array& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.shape, want.shape) << what;
  double size = 0;
  for (double x : want.v) size = std::fmax(size, std::fabs(x));
  ASSERT_GT(size, 1e-3) << what << " is all but zero";
  for (size_t i = 0; i < want.v.size(); ++i) {
    ASSERT_NEAR(got.at(static_cast<int64_t>(i)), want.v[i], 1e-5 * (size + std::fabs(want.v[i])))
        << what << ", element " << i;
  }
}

// The network gives `want`, by the interpreter, and by the kernels of its partition after all passes.
inline void ExpectNetworkGives(const Network& network, const ModelOptions& options, const std::vector<Array>& inputs,
                               const std::vector<Values>& want) {
  ASSERT_EQ(network.Validate(), absl::OkStatus());
  const auto got = EvaluateNetwork(network, inputs);
  ASSERT_TRUE(got.ok()) << got.status();
  const auto optimized = Optimize(network, options);
  ASSERT_TRUE(optimized.ok()) << optimized.status();
  const auto partition = PartitionNetwork(*optimized);
  ASSERT_TRUE(partition.ok()) << partition.status();
  const auto parts = EvaluatePartition(*optimized, *partition, inputs);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(got->size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string& name = network.tensors[network.outputs[i]].name;
    ExpectIs((*got)[i], want[i], name);
    ExpectIs((*parts)[i], want[i], name + " of the partition");
  }
}

}  // namespace diapason::reference
