// Small dags of the kinds that networks are made of.
#pragma once

#include <string>
#include <vector>

#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/run_sums.h"

namespace diapason::testing {

struct ConvShape {
  int64_t height = 8, width = 8, in = 8, out = 16, kernel = 3, stride = 1, padding = 1, batch = 1;
  DType dtype = DType::kFloat32;  // of tensors; sums are float32, of uint8 and weights in int8 they are int32
};

// A value as it is computed with.
inline Expr InFloat32(const Expr& value) {
  return value->dtype == DType::kFloat32 ? value : Cast(DType::kFloat32, value);
}

// A value as a factor, or as a term of its sums.
inline Expr Widened(const Expr& value) {
  if (IsFloat(value->dtype)) return InFloat32(value);
  return value->dtype == DType::kInt32 ? value : Cast(DType::kInt32, value);
}

// Has random inputs of 8 bits take all values.
inline int OfAllBytes(DagBuilder& b, int stage) {
  const bool is_signed = b.stage(stage).dtype == DType::kInt8;
  if (!IsByte(b.stage(stage).dtype)) return stage;
  b.stage(stage).valid_min = is_signed ? -128 : 0;
  b.stage(stage).valid_max = is_signed ? 127 : 255;
  return stage;
}

// A sum as it is stored: integers requantised to uint8, by a power of two, so that it is exact.
inline Expr Stored(DType dtype, const Expr& sum) {
  if (dtype != DType::kUint8) return dtype == sum->dtype ? sum : Cast(dtype, sum);
  const Expr scaled = Call("round", {Mul(Cast(DType::kFloat32, sum), FloatImm(0x1p-10))});
  return Cast(dtype, Min(Max(Add(scaled, FloatImm(3)), FloatImm(0)), FloatImm(255)));
}

// NHWC convolution + bias (+ residual) + relu, as compiler/graph partitions it.
inline ComputeDag Convolution(const ConvShape& s, bool residual = false) {
  DagBuilder b;
  const int64_t p = s.padding, oh = (s.height + 2 * p - s.kernel) / s.stride + 1,
                ow = (s.width + 2 * p - s.kernel) / s.stride + 1;
  const bool bytes = IsByte(s.dtype);
  const int x = OfAllBytes(b, b.Placeholder("x", {s.batch, s.height, s.width, s.in}, s.dtype));
  const int w = OfAllBytes(b, b.Constant("w", {s.kernel, s.kernel, s.in, s.out}, bytes ? DType::kInt8 : s.dtype));
  const int bias = b.Constant("bias", {s.out}, bytes ? DType::kInt32 : DType::kFloat32);
  if (bytes) b.stage(bias).valid_max = 10000;
  int input = x;
  if (p > 0) {
    input = b.Compute("pad", {s.batch, s.height + 2 * p, s.width + 2 * p, s.in}, [&](const DagBuilder::Vars& i) {
      const Expr rows = And(Le(IntImm(p), i[1]), Lt(i[1], IntImm(s.height + p)));
      const Expr columns = And(Le(IntImm(p), i[2]), Lt(i[2], IntImm(s.width + p)));
      return Select(And(rows, columns), b.At(x, {i[0], Sub(i[1], IntImm(p)), Sub(i[2], IntImm(p)), i[3]}),
                    bytes ? IntImm(0, s.dtype) : FloatImm(0, s.dtype));
    });
  }
  const std::vector<int64_t> shape{s.batch, oh, ow, s.out};
  const int conv = b.Reduce("conv", shape, {s.kernel, s.kernel, s.in}, Combiner::kSum,
                            [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                              return Mul(Widened(b.At(input, {i[0], Add(Mul(i[1], IntImm(s.stride)), r[0]),
                                                              Add(Mul(i[2], IntImm(s.stride)), r[1]), r[2]})),
                                         Widened(b.At(w, {r[0], r[1], r[2], i[3]})));
                            });
  int result = b.Compute("bias_add", shape, [&](const DagBuilder::Vars& i) {
    return Add(b.At(conv, {i[0], i[1], i[2], i[3]}), b.At(bias, {i[3]}));
  });
  if (residual) {
    const int other = OfAllBytes(b, b.Placeholder("other", shape, s.dtype));
    result = b.Compute("add", shape, [&](const DagBuilder::Vars& i) {
      return Add(b.At(result, {i[0], i[1], i[2], i[3]}), Widened(b.At(other, {i[0], i[1], i[2], i[3]})));
    });
  }
  const int relu = b.Compute("relu", shape, [&](const DagBuilder::Vars& i) {
    const Expr value = b.At(result, {i[0], i[1], i[2], i[3]});
    return Stored(s.dtype, bytes ? value : Max(value, FloatImm(0)));
  });
  return b.Build({relu}).value();
}

inline ComputeDag Depthwise(int64_t size, int64_t channels, int64_t kernel, int64_t stride = 1) {
  DagBuilder b;
  const int64_t p = kernel / 2, out = (size + 2 * p - kernel) / stride + 1;
  const int x = b.Placeholder("x", {1, size, size, channels});
  const int w = b.Constant("w", {kernel, kernel, channels});
  const int pad = b.Compute("pad", {1, size + 2 * p, size + 2 * p, channels}, [&](const DagBuilder::Vars& i) {
    const Expr rows = And(Le(IntImm(p), i[1]), Lt(i[1], IntImm(size + p)));
    const Expr columns = And(Le(IntImm(p), i[2]), Lt(i[2], IntImm(size + p)));
    return Select(And(rows, columns), b.At(x, {i[0], Sub(i[1], IntImm(p)), Sub(i[2], IntImm(p)), i[3]}), FloatImm(0));
  });
  const std::vector<int64_t> shape{1, out, out, channels};
  const int conv = b.Reduce(
      "depthwise", shape, {kernel, kernel}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return Mul(b.At(pad, {i[0], Add(Mul(i[1], IntImm(stride)), r[0]), Add(Mul(i[2], IntImm(stride)), r[1]), i[3]}),
                   b.At(w, {r[0], r[1], i[3]}));
      });
  const int relu = b.Compute("relu", shape, [&](const DagBuilder::Vars& i) {
    return Max(b.At(conv, {i[0], i[1], i[2], i[3]}), FloatImm(0));
  });
  return b.Build({relu}).value();
}

inline ComputeDag MatMul(int64_t m, int64_t n, int64_t k, bool bias) {
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k});
  const int w = b.Constant("w", {k, n});
  const int c =
      b.Reduce("dense", {m, n}, {k}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
      });
  if (!bias) return b.Build({c}).value();
  const int t = b.Constant("bias", {n});
  const int y = b.Compute("add", {m, n}, [&](const DagBuilder::Vars& i) {
    return Add(b.At(c, {i[0], i[1]}), b.At(t, {i[1]}));
  });
  return b.Build({y}).value();
}

// relu of a product: a narrow float in memory, sums in float32.
inline ComputeDag MatMulOfHalves(int64_t m, int64_t n, int64_t k, DType dtype = DType::kFloat16) {
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k}, dtype), w = b.Constant("w", {k, n}, dtype);
  const int c =
      b.Reduce("dense", {m, n}, {k}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return Mul(InFloat32(b.At(x, {i[0], r[0]})), InFloat32(b.At(w, {r[0], i[1]})));
      });
  return b
      .Build({b.Compute("y", {m, n},
                        [&](const DagBuilder::Vars& i) {
                          return Cast(dtype, Max(b.At(c, {i[0], i[1]}), FloatImm(0)));
                        })})
      .value();
}

// Quantised tensors, with sums in int32 and a bias of that type.
inline ComputeDag MatMulOfBytes(int64_t m, int64_t n, int64_t k, bool w_by_n = false) {
  DagBuilder b;
  const int x = OfAllBytes(b, b.Placeholder("x", {m, k}, DType::kUint8));
  const int w =
      OfAllBytes(b, b.Constant("w", w_by_n ? std::vector<int64_t>{n, k} : std::vector<int64_t>{k, n}, DType::kInt8));
  const int bias = b.Constant("bias", {n}, DType::kInt32);
  b.stage(bias).valid_max = 10000;
  const int c =
      b.Reduce("dense", {m, n}, {k}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return Mul(Widened(b.At(x, {i[0], r[0]})), Widened(w_by_n ? b.At(w, {i[1], r[0]}) : b.At(w, {r[0], i[1]})));
      });
  return b
      .Build({b.Compute("y", {m, n},
                        [&](const DagBuilder::Vars& i) {
                          return Stored(DType::kUint8, Add(b.At(c, {i[0], i[1]}), b.At(bias, {i[1]})));
                        })})
      .value();
}

// A product of float16 with a bias and a residual, as linear layers of transformers have them; scaled by a tensor
// without dimensions.
inline ComputeDag LinearOfHalves(int64_t m, int64_t n, int64_t k, bool scaled = false) {
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k}, DType::kFloat16), w = b.Constant("w", {k, n}, DType::kFloat16);
  const int bias = b.Constant("bias", {n}, DType::kFloat16),
            residual = b.Placeholder("residual", {m, n}, DType::kFloat16);
  const int scale = scaled ? b.Placeholder("scale", {}, DType::kFloat16) : -1;
  const int c =
      b.Reduce("dense", {m, n}, {k}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return Mul(InFloat32(b.At(x, {i[0], r[0]})), InFloat32(b.At(w, {r[0], i[1]})));
      });
  return b
      .Build({b.Compute("y", {m, n},
                        [&](const DagBuilder::Vars& i) {
                          Expr sum = b.At(c, {i[0], i[1]});
                          if (scaled) sum = Mul(sum, InFloat32(b.At(scale, {})));
                          sum = Add(sum, InFloat32(b.At(bias, {i[1]})));
                          return Cast(DType::kFloat16, Add(sum, InFloat32(b.At(residual, {i[0], i[1]}))));
                        })})
      .value();
}

// A product of two inputs.
inline ComputeDag Product(int64_t m, int64_t n, int64_t k) {
  DagBuilder b;
  const int x = b.Placeholder("x", {m, k}), y = b.Placeholder("y", {k, n});
  return b
      .Build({b.Reduce("product", {m, n}, {k}, Combiner::kSum,
                       [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                         return Mul(b.At(x, {i[0], r[0]}), b.At(y, {r[0], i[1]}));
                       })})
      .value();
}

// The dag with bounds for all its floats: those of weights for constants.
inline ComputeDag Bounded(const ComputeDag& dag) {
  std::vector<Stage> stages = dag.stages();
  for (Stage& stage : stages) {
    if (!stage.placeholder || !IsFloat(stage.dtype)) continue;
    stage.valid_max = stage.constant ? 8 : 2048;
    stage.valid_min = -stage.valid_max;
  }
  return ComputeDag::Create(std::move(stages), dag.outputs()).value();
}

// Windows of each channel of x - zero: they read a number beside tensors, as quantised layers do.
inline ComputeDag ShiftedDepthwise(int64_t size, int64_t channels) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1, size, size, channels}), zero = b.Placeholder("zero", {});
  const int w = b.Constant("w", {3, 3, channels});
  const int shifted = b.Compute("shifted", {1, size, size, channels}, [&](const DagBuilder::Vars& i) {
    return Sub(b.At(x, {i[0], i[1], i[2], i[3]}), b.At(zero, {}));
  });
  return b
      .Build({b.Reduce(
          "conv", {1, size - 2, size - 2, channels}, {3, 3}, Combiner::kSum,
          [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
            return Mul(b.At(shifted, {i[0], Add(i[1], r[0]), Add(i[2], r[1]), i[3]}), b.At(w, {r[0], r[1], i[3]}));
          })})
      .value();
}

inline ComputeDag MaxPool(int64_t size, int64_t channels) {
  DagBuilder b;
  const int64_t out = (size + 2 - 3) / 2 + 1;
  const int x = b.Placeholder("x", {1, size, size, channels});
  const int pad = b.Compute("pad", {1, size + 2, size + 2, channels}, [&](const DagBuilder::Vars& i) {
    const Expr inside =
        And(And(Le(IntImm(1), i[1]), Lt(i[1], IntImm(size + 1))), And(Le(IntImm(1), i[2]), Lt(i[2], IntImm(size + 1))));
    return Select(inside, b.At(x, {i[0], Sub(i[1], IntImm(1)), Sub(i[2], IntImm(1)), i[3]}), FloatImm(-1e30));
  });
  const int pool =
      b.Reduce("pool", {1, out, out, channels}, {3, 3}, Combiner::kMax,
               [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                 return b.At(pad, {i[0], Add(Mul(i[1], IntImm(2)), r[0]), Add(Mul(i[2], IntImm(2)), r[1]), i[3]});
               });
  return b.Build({pool}).value();
}

inline ComputeDag GlobalAverage(int64_t size, int64_t channels) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1, size, size, channels});
  const int sum = b.Reduce("sum", {1, channels}, {size, size}, Combiner::kSum,
                           [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                             return b.At(x, {i[0], r[0], r[1], i[1]});
                           });
  const int mean = b.Compute("mean", {1, channels}, [&](const DagBuilder::Vars& i) {
    return Mul(b.At(sum, {i[0], i[1]}), FloatImm(1.0 / static_cast<double>(size * size)));
  });
  return b.Build({mean}).value();
}

inline ComputeDag Softmax(int64_t rows, int64_t columns) {
  DagBuilder b;
  const int x = b.Placeholder("x", {rows, columns});
  const int top =
      b.Reduce("top", {rows}, {columns}, Combiner::kMax, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(x, {i[0], r[0]});
      });
  const int e = b.Compute("e", {rows, columns}, [&](const DagBuilder::Vars& i) {
    return Call("exp", {Sub(b.At(x, {i[0], i[1]}), b.At(top, {i[0]}))});
  });
  const int sum =
      b.Reduce("sum", {rows}, {columns}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(e, {i[0], r[0]});
      });
  const int y = b.Compute("y", {rows, columns}, [&](const DagBuilder::Vars& i) {
    return Div(b.At(e, {i[0], i[1]}), b.At(sum, {i[0]}));
  });
  return b.Build({y}).value();
}

// Normalised rows of x + other, scaled and shifted, then relu: between a sum and the sum of squares of what is left,
// element-wise stages.
inline ComputeDag LayerNorm(int64_t rows, int64_t columns) {
  DagBuilder b;
  const std::vector<int64_t> shape{rows, columns};
  const int x = b.Placeholder("x", shape), other = b.Placeholder("other", shape);
  const int scale = b.Constant("scale", {columns}), shift = b.Constant("shift", {columns});
  const Expr share = FloatImm(1.0 / static_cast<double>(columns));
  const int added = b.Compute("added", shape, [&](const DagBuilder::Vars& i) {
    return Add(b.At(x, {i[0], i[1]}), b.At(other, {i[0], i[1]}));
  });
  const int sum =
      b.Reduce("sum", {rows}, {columns}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(added, {i[0], r[0]});
      });
  const int centred = b.Compute("centred", shape, [&](const DagBuilder::Vars& i) {
    return Sub(b.At(added, {i[0], i[1]}), Mul(b.At(sum, {i[0]}), share));
  });
  const int squares = b.Reduce("squares", {rows, 1}, {columns}, Combiner::kSum,
                               [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                                 return Mul(b.At(centred, {i[0], r[0]}), b.At(centred, {i[0], r[0]}));
                               });
  const int deviation = b.Compute("deviation", {rows, 1}, [&](const DagBuilder::Vars& i) {
    return Call("rsqrt", {Add(Mul(b.At(squares, {i[0], i[1]}), share), FloatImm(1e-5))});
  });
  const int y = b.Compute("y", shape, [&](const DagBuilder::Vars& i) {
    const Expr normal = Mul(b.At(centred, {i[0], i[1]}), b.At(deviation, {i[0], IntImm(0)}));
    return Max(Add(Mul(normal, b.At(scale, {i[1]})), b.At(shift, {i[1]})), FloatImm(0));
  });
  return b.Build({y}).value();
}

// Softmax along the middle one of three axes: neighbours in memory are of different rows.
inline ComputeDag SoftmaxOfChannels(int64_t images, int64_t channels, int64_t pixels) {
  DagBuilder b;
  const std::vector<int64_t> shape{images, channels, pixels}, rows{images, pixels};
  const int x = b.Placeholder("x", shape);
  const int top =
      b.Reduce("top", rows, {channels}, Combiner::kMax, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(x, {i[0], r[0], i[1]});
      });
  const int e = b.Compute("e", shape, [&](const DagBuilder::Vars& i) {
    return Call("exp", {Sub(b.At(x, {i[0], i[1], i[2]}), b.At(top, {i[0], i[2]}))});
  });
  const int sum =
      b.Reduce("sum", rows, {channels}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(e, {i[0], r[0], i[1]});
      });
  const int y = b.Compute("y", shape, [&](const DagBuilder::Vars& i) {
    return Div(b.At(e, {i[0], i[1], i[2]}), b.At(sum, {i[0], i[2]}));
  });
  return b.Build({y}).value();
}

// Images normalised by the root of their mean square over height and width, in float16; sums are float32.
inline ComputeDag InstanceNorm(int64_t channels, int64_t height, int64_t width) {
  DagBuilder b;
  const std::vector<int64_t> shape{1, channels, height, width};
  const int x = b.Placeholder("x", shape, DType::kFloat16);
  const auto at = [&](const DagBuilder::Vars& i) { return Cast(DType::kFloat32, b.At(x, {i[0], i[1], i[2], i[3]})); };
  const int squares = b.Reduce("squares", {1, channels}, {height, width}, Combiner::kSum,
                               [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
                                 return Mul(at({i[0], i[1], r[0], r[1]}), at({i[0], i[1], r[0], r[1]}));
                               });
  const int y = b.Compute("y", shape, [&](const DagBuilder::Vars& i) {
    const Expr mean = Mul(b.At(squares, {i[0], i[1]}), FloatImm(1.0 / static_cast<double>(height * width)));
    return Cast(DType::kFloat16, Mul(at(i), Call("rsqrt", {Add(mean, FloatImm(1e-3))})));
  });
  return b.Build({y}).value();
}

// One number a row: the sum of the squares of what is left when the mean is taken off.
inline ComputeDag SumOfSquares(int64_t rows, int64_t columns) {
  DagBuilder b;
  const int x = b.Placeholder("x", {rows, columns});
  const int sum =
      b.Reduce("sum", {rows}, {columns}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        return b.At(x, {i[0], r[0]});
      });
  const int squares =
      b.Reduce("squares", {rows}, {columns}, Combiner::kSum, [&](const DagBuilder::Vars& i, const DagBuilder::Vars& r) {
        const Expr left =
            Sub(b.At(x, {i[0], r[0]}), Mul(b.At(sum, {i[0]}), FloatImm(1.0 / static_cast<double>(columns))));
        return Mul(left, left);
      });
  return b.Build({squares}).value();
}

// Attention of `groups` heads' keys and values by `heads` heads' queries, masked by a bias for each pair; keys are
// given by rows or, transposed, by columns.
struct AttentionShape {
  int64_t heads = 2, groups = 2, queries, keys, size, values;
  bool masked = true, transposed_keys = false,
       joined = false;  // joined: heads side by side in the result, and a residual
  DType dtype = DType::kFloat32;
  int64_t hidden = 0;    // keys that nobody sees, the first: scores of minus infinity
  bool rotated = false;  // queries and keys are turned by their places first, in float32
  double scale = 0.3;    // of scores
  bool scale_is_input = false;
  bool exported = false;  // as exporters write it: both operands times a number first, and keys transposed
};

inline ComputeDag Attention(const AttentionShape& s) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const auto at = [&](int stage, const Vars& i) { return Cast(DType::kFloat32, b.At(stage, i)); };
  const auto group = [&](const Expr& head) { return s.groups == s.heads ? head : FloorDiv(head, s.heads / s.groups); };
  const int q = b.Placeholder("q", {s.heads, s.queries, s.size}, s.dtype);
  const int k = b.Placeholder("k",
                              s.transposed_keys ? std::vector<int64_t>{s.groups, s.size, s.keys}
                                                : std::vector<int64_t>{s.groups, s.keys, s.size},
                              s.dtype);
  const int v = b.Placeholder("v", {s.groups, s.keys, s.values}, s.dtype);
  const auto turned = [&](int x, int64_t heads, int64_t length) {
    const int cosine = b.Constant("cosine", {length, s.size}), sine = b.Constant("sine", {length, s.size});
    return b.Compute("turned", {heads, length, s.size}, [&](const Vars& i) {
      const Expr other = FloorMod(Add(i[2], IntImm(s.size / 2)), s.size);
      return Add(Mul(at(x, i), b.At(cosine, {i[1], i[2]})), Mul(at(x, {i[0], i[1], other}), b.At(sine, {i[1], i[2]})));
    });
  };
  int queries = s.rotated ? turned(q, s.heads, s.queries) : q;
  int keys = s.rotated ? turned(k, s.groups, s.keys) : k;
  if (s.exported) {
    const auto times = [&](const Expr& x) { return Mul(x, FloatImm(0.5)); };
    queries = b.Compute("queries", {s.heads, s.queries, s.size}, [&](const Vars& i) { return times(at(q, i)); });
    keys = b.Compute("keys", {s.groups, s.size, s.keys}, [&](const Vars& i) {
      return times(at(k, {i[0], i[2], i[1]}));
    });
  }
  const bool keys_last = s.transposed_keys || s.exported;
  const std::vector<int64_t> shape{s.heads, s.queries, s.keys}, rows{s.heads, s.queries};
  int seen = b.Reduce("scores", shape, {s.size}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(at(queries, {i[0], i[1], r[0]}),
               at(keys, keys_last ? Vars{group(i[0]), r[0], i[2]} : Vars{group(i[0]), i[2], r[0]}));
  });
  const int scale = s.scale_is_input ? b.Placeholder("scale", {}, s.dtype) : -1;
  seen = b.Compute("scaled", shape, [&](const Vars& i) {
    return Mul(b.At(seen, i), s.scale_is_input ? at(scale, {}) : FloatImm(s.scale));
  });
  if (s.masked) {
    const int mask = b.Placeholder("mask", {s.queries, s.keys});
    seen = b.Compute("masked", shape, [&](const Vars& i) { return Add(b.At(seen, i), b.At(mask, {i[1], i[2]})); });
  }
  if (s.hidden > 0) {
    const Expr never = FloatImm(-std::numeric_limits<double>::infinity());
    seen = b.Compute("hidden", shape,
                     [&](const Vars& i) { return Select(Lt(i[2], IntImm(s.hidden)), never, b.At(seen, i)); });
  }
  const int top = b.Reduce("top", rows, {s.keys}, Combiner::kMax, [&](const Vars& i, const Vars& r) {
    return b.At(seen, {i[0], i[1], r[0]});
  });
  const int e = b.Compute("e", shape, [&](const Vars& i) {
    return Call("exp", {Sub(b.At(seen, i), b.At(top, {i[0], i[1]}))});
  });
  const int sum = b.Reduce("sum", rows, {s.keys}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return b.At(e, {i[0], i[1], r[0]});
  });
  const int weights = b.Compute("weights", shape, [&](const Vars& i) {
    return Div(b.At(e, i), b.At(sum, {i[0], i[1]}));
  });
  const int y =
      b.Reduce("y", {s.heads, s.queries, s.values}, {s.keys}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
        return Mul(b.At(weights, {i[0], i[1], r[0]}), at(v, {group(i[0]), r[0], i[2]}));
      });
  if (!s.joined) {
    if (s.dtype == DType::kFloat32) return b.Build({y}).value();
    return b
        .Build({b.Compute("cast", {s.heads, s.queries, s.values},
                          [&](const Vars& i) { return Cast(s.dtype, b.At(y, i)); })})
        .value();
  }
  const int residual = b.Placeholder("residual", {s.queries, s.heads, s.values});
  return b
      .Build({b.Compute("added", {s.queries, s.heads, s.values},
                        [&](const Vars& i) {
                          return Max(Add(b.At(y, {i[1], i[0], i[2]}), b.At(residual, i)), FloatImm(0));
                        })})
      .value();
}

// Queries, keys and values side by side for each token, as one product gives them, which stages of their own take
// apart.
inline ComputeDag AttentionOfTokens(int64_t tokens, int64_t heads, int64_t size) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const int x = b.Placeholder("x", {tokens, 3 * heads * size});
  const auto part = [&](const char* name, int64_t which, bool transposed) {
    return b.Compute(
        name, transposed ? std::vector<int64_t>{heads, size, tokens} : std::vector<int64_t>{heads, tokens, size},
        [&](const Vars& i) {
          return b.At(x, {transposed ? i[2] : i[1],
                          Add(Add(Mul(i[0], IntImm(size)), transposed ? i[1] : i[2]), IntImm(which * heads * size))});
        });
  };
  const int q = part("q", 0, false), k = part("k", 1, true), v = part("v", 2, false);
  const std::vector<int64_t> shape{heads, tokens, tokens}, rows{heads, tokens};
  const int scores = b.Reduce("scores", shape, {size}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(b.At(q, {i[0], i[1], r[0]}), b.At(k, {i[0], r[0], i[2]}));
  });
  const int top = b.Reduce("top", rows, {tokens}, Combiner::kMax, [&](const Vars& i, const Vars& r) {
    return b.At(scores, {i[0], i[1], r[0]});
  });
  const int e = b.Compute("e", shape, [&](const Vars& i) {
    return Call("exp", {Sub(b.At(scores, i), b.At(top, {i[0], i[1]}))});
  });
  const int sum = b.Reduce("sum", rows, {tokens}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return b.At(e, {i[0], i[1], r[0]});
  });
  const int weights = b.Compute("weights", shape, [&](const Vars& i) {
    return Div(b.At(e, i), b.At(sum, {i[0], i[1]}));
  });
  const int y = b.Reduce("y", {heads, tokens, size}, {tokens}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(b.At(weights, {i[0], i[1], r[0]}), b.At(v, {i[0], r[0], i[2]}));
  });
  return b
      .Build({b.Compute("joined", {tokens, heads, size},
                        [&](const Vars& i) {
                          return b.At(y, {i[1], i[0], i[2]});
                        })})
      .value();
}

// Stages that read the one before them three times: as one expression, the last has 3^`length` reads of x.
inline ComputeDag Iterated(int length, int64_t size) {
  DagBuilder b;
  int v = b.Placeholder("x", {size});
  for (int n = 0; n < length; ++n)
    v = b.Compute("step" + std::to_string(n), {size}, [&](const DagBuilder::Vars& i) {
      return Mul(FloatImm(0.5), Add(Mul(b.At(v, {i[0]}), b.At(v, {i[0]})), b.At(v, {i[0]})));
    });
  return b.Build({v}).value();
}

struct NamedDag {
  std::string name;
  ComputeDag dag;
};

// One of each kind, with extents that tiles do not divide among them.
inline std::vector<NamedDag> AllKinds() {
  return {
      {"conv3x3", Convolution({14, 14, 16, 32, 3, 1, 1}, true)},
      {"conv3x3_odd", Convolution({7, 7, 12, 20, 3, 1, 1})},
      {"conv3x3_stride2", Convolution({15, 15, 8, 24, 3, 2, 1})},
      {"conv3x3_deep", Convolution({6, 6, 64, 12, 3, 1, 1})},
      {"conv1x1_stride2", Convolution({14, 14, 16, 32, 1, 2, 0})},
      {"conv7x7_stride2", Convolution({30, 30, 3, 16, 7, 2, 3})},
      {"depthwise3x3", Depthwise(13, 24, 3)},
      {"depthwise5x5_stride2", Depthwise(12, 16, 5, 2)},
      {"gemm", MatMul(33, 40, 96, false)},
      {"gemm_half", MatMulOfHalves(33, 40, 96)},
      {"gemm_bfloat16", MatMulOfHalves(33, 40, 96, DType::kBfloat16)},
      {"conv3x3_half", Convolution({14, 14, 16, 32, 3, 1, 1, 1, DType::kFloat16}, true)},
      {"gemm_bytes", MatMulOfBytes(33, 40, 96)},
      {"gemm_bytes_odd", MatMulOfBytes(33, 22, 75, true)},
      {"conv3x3_bytes", Convolution({14, 14, 32, 24, 3, 1, 1, 1, DType::kUint8}, true)},
      {"dense", MatMul(1, 100, 256, true)},
      {"depthwise3x3_shifted", ShiftedDepthwise(9, 12)},
      {"maxpool", MaxPool(14, 16)},
      {"average", GlobalAverage(7, 48)},
      {"softmax", Softmax(3, 70)},
      {"layer_norm", LayerNorm(4, 40)},
  };
}

// Chains of reductions over rows, of lengths that vectors and threads divide, and others.
inline std::vector<NamedDag> RowChains() {
  return {
      {"softmax", Softmax(5, 70)},
      {"softmax_short", Softmax(300, 9)},
      {"softmax_one_row", Softmax(1, 1000)},
      {"softmax_of_channels", SoftmaxOfChannels(2, 21, 45)},
      {"layer_norm", LayerNorm(6, 96)},
      {"layer_norm_odd", LayerNorm(3, 517)},
      {"instance_norm", InstanceNorm(5, 12, 28)},
      {"instance_norm_odd", InstanceNorm(3, 7, 7)},
      {"sum_of_squares", SumOfSquares(7, 130)},
  };
}

// Heads of a group, an axis of their own, share keys and values of the group, in float16.
inline ComputeDag AttentionOfSharedHeads(int64_t groups, int64_t heads, int64_t queries, int64_t keys, int64_t size) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  constexpr DType kHalf = DType::kFloat16;
  const int q = b.Placeholder("q", {groups, heads, queries, size}, kHalf);
  const int k = b.Placeholder("k", {groups, 1, keys, size}, kHalf),
            v = b.Placeholder("v", {groups, 1, keys, size}, kHalf);
  const std::vector<int64_t> shape{groups, heads, queries, keys}, rows{groups, heads, queries};
  const int scores = b.Reduce("scores", shape, {size}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(InFloat32(b.At(q, {i[0], i[1], i[2], r[0]})), InFloat32(b.At(k, {i[0], IntImm(0), i[3], r[0]})));
  });
  const int scaled = b.Compute("scaled", shape, [&](const Vars& i) { return Mul(b.At(scores, i), FloatImm(0.25)); });
  const int top = b.Reduce("top", rows, {keys}, Combiner::kMax, [&](const Vars& i, const Vars& r) {
    return b.At(scaled, {i[0], i[1], i[2], r[0]});
  });
  const int e = b.Compute("e", shape, [&](const Vars& i) {
    return Call("exp", {Sub(b.At(scaled, i), b.At(top, {i[0], i[1], i[2]}))});
  });
  const int sum = b.Reduce("sum", rows, {keys}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return b.At(e, {i[0], i[1], i[2], r[0]});
  });
  const int weights = b.Compute("weights", shape, [&](const Vars& i) {
    return Div(b.At(e, i), b.At(sum, {i[0], i[1], i[2]}));
  });
  const int y =
      b.Reduce("y", {groups, heads, queries, size}, {keys}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
        return Mul(b.At(weights, {i[0], i[1], i[2], r[0]}), InFloat32(b.At(v, {i[0], IntImm(0), r[0], i[3]})));
      });
  return b
      .Build({b.Compute("stored", {groups, heads, queries, size},
                        [&](const Vars& i) { return Stored(kHalf, b.At(y, i)); })})
      .value();
}

// Attentions with extents that tiles divide and others, of one query, with all that they may have.
inline std::vector<NamedDag> Attentions() {
  return {
      {"attention", Attention({.queries = 32, .keys = 64, .size = 32, .values = 32})},
      {"attention_odd",
       Attention({.heads = 3, .groups = 3, .queries = 13, .keys = 37, .size = 20, .values = 24, .joined = true})},
      {"attention_transposed",
       Attention({.queries = 20, .keys = 50, .size = 16, .values = 40, .masked = false, .transposed_keys = true})},
      {"attention_grouped", Attention({.heads = 4, .groups = 2, .queries = 9, .keys = 24, .size = 16, .values = 16})},
      {"attention_one_query",
       Attention({.heads = 4, .groups = 1, .queries = 1, .keys = 200, .size = 32, .values = 32})},
      {"attention_of_tokens", AttentionOfTokens(18, 3, 16)},
      {"attention_half", Attention({.queries = 16, .keys = 48, .size = 32, .values = 32, .dtype = DType::kFloat16})},
      {"attention_half_odd",
       Attention(
           {.heads = 4, .groups = 2, .queries = 37, .keys = 53, .size = 24, .values = 40, .dtype = DType::kFloat16})},
      {"attention_half_one_query",
       Attention(
           {.heads = 3, .groups = 3, .queries = 1, .keys = 53, .size = 24, .values = 40, .dtype = DType::kFloat16})},
      {"attention_half_few_queries",
       Attention(
           {.heads = 2, .groups = 2, .queries = 5, .keys = 150, .size = 16, .values = 16, .dtype = DType::kFloat16})},
      {"attention_half_shared", AttentionOfSharedHeads(2, 3, 20, 40, 16)},
      {"attention_half_rotated",
       Attention({.queries = 24, .keys = 40, .size = 16, .values = 32, .dtype = DType::kFloat16, .rotated = true})},
  };
}

// Attentions as exporters write them, whose operands are computed.
inline std::vector<NamedDag> ExportedAttentions() {
  return {
      {"attention_exported", Attention({.queries = 32, .keys = 64, .size = 32, .values = 32, .exported = true})},
      {"attention_exported_odd", Attention({.heads = 4,
                                            .groups = 2,
                                            .queries = 13,
                                            .keys = 37,
                                            .size = 20,
                                            .values = 24,
                                            .masked = false,
                                            .joined = true,
                                            .exported = true})},
      {"attention_exported_half",
       Attention({.queries = 16, .keys = 48, .size = 32, .values = 32, .dtype = DType::kFloat16, .exported = true})},
      {"attention_exported_one_query",
       Attention({.queries = 1, .keys = 50, .size = 16, .values = 16, .exported = true})},
  };
}

// A row divided by its length, scaled, times a matrix (RMS normalisation in front of a projection).
inline ComputeDag NormalisedRowProduct(int64_t terms, int64_t columns, DType dtype) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const int x = b.Placeholder("x", {1, terms}, dtype);
  const int scale = b.Constant("scale", {terms}, dtype), w = b.Constant("w", {terms, columns}, dtype);
  const int squares = b.Reduce("squares", {1}, {terms}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(InFloat32(b.At(x, {i[0], r[0]})), InFloat32(b.At(x, {i[0], r[0]})));
  });
  const int normal = b.Compute("normal", {1, terms}, [&](const Vars& i) {
    const Expr mean = Mul(b.At(squares, {i[0]}), FloatImm(1.0 / static_cast<double>(terms)));
    return Stored(dtype, Mul(Mul(InFloat32(b.At(x, {i[0], i[1]})), Call("rsqrt", {Add(mean, FloatImm(1e-5))})),
                             InFloat32(b.At(scale, {i[1]}))));
  });
  const int sum = b.Reduce("sum", {1, columns}, {terms}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(InFloat32(b.At(normal, {i[0], r[0]})), InFloat32(b.At(w, {r[0], i[1]})));
  });
  return b.Build({b.Compute("y", {1, columns}, [&](const Vars& i) { return Stored(dtype, b.At(sum, i)); })}).value();
}

// Rows of `size` elements for each head: all of a tensor; with `past` of them, those of one tensor and behind these the
// rows that others made, all of the heads side by side.
struct HeadRows {
  int64_t heads, rows, size;
  DType dtype;
  int64_t past;
};
inline int RowsOfHeads(DagBuilder* b, const HeadRows& shape) {
  using Vars = DagBuilder::Vars;
  const int64_t heads = shape.heads, rows = shape.rows, size = shape.size, past = shape.past;
  const DType dtype = shape.dtype;
  if (past == 0) return b->Placeholder("rows", {heads, rows, size}, dtype);
  const int cache = b->Placeholder("past", {heads, past, size}, dtype);
  const int made = b->Placeholder("made", {rows - past, 3 * heads * size}, dtype);
  const int heads_of = b->Compute("moved", {heads, rows - past, size}, [&](const Vars& i) {
    return b->At(made, {i[1], Add(Mul(i[0], IntImm(size)), Add(i[2], IntImm(heads * size)))});
  });
  return b->Compute("appended", {heads, rows, size}, [&](const Vars& i) {
    return Select(Lt(i[1], IntImm(past)), b->At(cache, i), b->At(heads_of, {i[0], Sub(i[1], IntImm(past)), i[2]}));
  });
}

// The values of heads by the softmax of their scores, of one query each; `past` as RowsOfHeads has it.
inline ComputeDag ValuesOfScores(int64_t heads, int64_t keys, int64_t size, DType dtype, int64_t past = 0) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const int scores = b.Placeholder("scores", {heads, keys}), v = RowsOfHeads(&b, {heads, keys, size, dtype, past});
  const int top = b.Reduce("top", {heads}, {keys}, Combiner::kMax, [&](const Vars& i, const Vars& r) {
    return b.At(scores, {i[0], r[0]});
  });
  const int e = b.Compute("e", {heads, keys}, [&](const Vars& i) {
    return Call("exp", {Sub(b.At(scores, {i[0], i[1]}), b.At(top, {i[0]}))});
  });
  const int sum = b.Reduce("sum", {heads}, {keys}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return b.At(e, {i[0], r[0]});
  });
  const int weights = b.Compute("weights", {heads, keys}, [&](const Vars& i) {
    return Div(b.At(e, {i[0], i[1]}), b.At(sum, {i[0]}));
  });
  const int y = b.Reduce("y", {heads, size}, {keys}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(b.At(weights, {i[0], r[0]}), InFloat32(b.At(v, {i[0], r[0], i[1]})));
  });
  return b.Build({b.Compute("stored", {heads, size}, [&](const Vars& i) { return Stored(dtype, b.At(y, i)); })})
      .value();
}

// Scaled scores of one query a head; `past` as RowsOfHeads has it, with keys that are transposed first.
inline ComputeDag ScoresOfKeys(int64_t heads, int64_t keys, int64_t size, DType dtype, int64_t past = 0) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const int q = b.Placeholder("q", {heads, size}, dtype), k = RowsOfHeads(&b, {heads, keys, size, dtype, past});
  const int turned = past == 0 ? k : b.Compute("turned", {heads, size, keys}, [&](const Vars& i) {
    return b.At(k, {i[0], i[2], i[1]});
  });
  const int scores = b.Reduce("scores", {heads, keys}, {size}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    const Expr key = past == 0 ? b.At(k, {i[0], i[1], r[0]}) : b.At(turned, {i[0], r[0], i[1]});
    return Mul(InFloat32(b.At(q, {i[0], r[0]})), InFloat32(key));
  });
  return b
      .Build({b.Compute("scaled", {heads, keys}, [&](const Vars& i) { return Mul(b.At(scores, i), FloatImm(0.3)); })})
      .value();
}

// A vector times a constant matrix.
inline ComputeDag VectorTimesMatrix(int64_t terms, int64_t columns, DType dtype) {
  DagBuilder b;
  using Vars = DagBuilder::Vars;
  const int x = b.Placeholder("x", {1, terms}, dtype), w = b.Constant("w", {terms, columns}, dtype);
  const int y = b.Reduce("y", {1, columns}, {terms}, Combiner::kSum, [&](const Vars& i, const Vars& r) {
    return Mul(InFloat32(b.At(x, {i[0], r[0]})), InFloat32(b.At(w, {r[0], i[1]})));
  });
  return b.Build({b.Compute("stored", {1, columns}, [&](const Vars& i) { return Stored(dtype, b.At(y, i)); })}).value();
}

// What is read once: matrices that a row multiplies, which may be normalised first, and keys and values of one query.
inline std::vector<NamedDag> RowProducts() {
  return {{"row", NormalisedRowProduct(200, 72, DType::kFloat32)},
          {"row_half", NormalisedRowProduct(136, 88, DType::kFloat16)},
          {"values", ValuesOfScores(3, 90, 24, DType::kFloat32)},
          {"values_half", ValuesOfScores(2, 133, 40, DType::kFloat16)},
          {"keys", ScoresOfKeys(3, 50, 40, DType::kFloat32)},
          {"keys_half", ScoresOfKeys(2, 77, 64, DType::kFloat16)},
          {"appended_values", ValuesOfScores(3, 90, 24, DType::kFloat32, 88)},
          {"appended_values_half", ValuesOfScores(2, 133, 40, DType::kFloat16, 132)},
          {"appended_keys", ScoresOfKeys(3, 50, 40, DType::kFloat32, 49)},
          {"appended_keys_half", ScoresOfKeys(2, 77, 64, DType::kFloat16, 70)},
          {"unaligned", VectorTimesMatrix(96, 77, DType::kFloat32)},
          {"unaligned_half", VectorTimesMatrix(64, 213, DType::kFloat16)}};
}

// Products that warpgroups take of a device with one core.
inline std::vector<NamedDag> LargerProducts() {
  return {
      {"gemm", MatMul(150, 136, 96, false)},
      {"gemm_half", MatMulOfHalves(150, 136, 96)},
      {"gemm_bytes", MatMulOfBytes(150, 136, 96)},
      {"gemm_bytes_by_columns", MatMulOfBytes(150, 136, 100, true)},
      {"conv3x3_bytes", Convolution({13, 14, 48, 72, 3, 1, 1, 1, DType::kUint8})},
      {"conv3x3", Convolution({14, 13, 24, 72, 3, 1, 1})},
      {"conv1x1_stride2", Convolution({26, 26, 40, 80, 1, 2, 0})},
  };
}

// The element of a stage in float32.
inline Expr WideAt(const DagBuilder& b, int id, std::vector<Expr> at) {
  return Cast(DType::kFloat32, b.At(id, std::move(at)));
}

inline int AddProductOfHalves(DagBuilder& b, int64_t m, int64_t n, int64_t k) {
  const int x = b.Placeholder("x", {1, m, k}, DType::kFloat16), w = b.Constant("w", {k, n}, DType::kFloat16);
  return b.Reduce("matmul", {1, m, n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(WideAt(b, x, {i[0], i[1], r[0]}), WideAt(b, w, {r[0], i[2]}));
  });
}

// In float16.
inline int AddRounded(DagBuilder& b, int id) {
  return b.Compute("cast", b.stage(id).shape(), [&](auto& i) { return Cast(DType::kFloat16, b.At(id, i)); });
}

constexpr int64_t kRunOfSums = 64;

// A product with a residual, and the sums of its rows' runs.
inline ComputeDag ProductWithSums(int64_t m, int64_t n, int64_t k) {
  DagBuilder b;
  const int product = AddProductOfHalves(b, m, n, k), residual = b.Placeholder("residual", {1, m, n}, DType::kFloat16);
  const int sum = b.Compute("add", {1, m, n}, [&](auto& i) { return Add(b.At(product, i), WideAt(b, residual, i)); });
  const int result = AddRounded(b, sum);
  return b.Build({result, AddRunSums(b, result, kRunOfSums)}).value();
}

// A product whose rows are divided by a deviation that follows from sums of runs.
inline ComputeDag ProductBySums(int64_t m, int64_t n, int64_t k) {
  DagBuilder b;
  const int product = AddProductOfHalves(b, m, n, k);
  const int totals = AddRowTotals(b, b.Placeholder("sums", {k / kRunOfSums, 1, m, 2}));
  const int deviation = b.Compute("deviation", {1, m, 1}, [&](auto& i) {
    const Expr mean = b.At(totals, {i[0], i[1], IntImm(0)}), squares = b.At(totals, {i[0], i[1], IntImm(1)});
    return Call("rsqrt", {Add(Max(Sub(squares, Mul(mean, mean)), FloatImm(0)), FloatImm(0.5))});
  });
  const int scaled = b.Compute("scaled", {1, m, n}, [&](auto& i) {
    return Mul(b.At(product, i), b.At(deviation, {i[0], i[1], IntImm(0)}));
  });
  return b.Build({AddRounded(b, scaled)}).value();
}

inline std::vector<NamedDag> SumsOfRuns() {
  return {{"with_sums", ProductWithSums(72, 128, 128)}, {"by_sums", ProductBySums(72, 128, 128)}};
}

// Products of factors whose bounds are known, of lengths that float16 products divide and others.
inline std::vector<NamedDag> BoundedProducts() {
  return {{"bounded", Bounded(MatMul(150, 136, 96, true))},
          {"bounded_uneven", Bounded(MatMul(77, 91, 56, false))},
          {"bounded_inputs", Bounded(Product(70, 72, 40))}};
}

// Products whose results meet other tensors.
inline std::vector<NamedDag> LinearLayers() {
  return {{"linear", LinearOfHalves(150, 136, 96)},
          {"linear_uneven", LinearOfHalves(77, 91, 56)},
          {"linear_scaled", LinearOfHalves(70, 64, 48, true)}};
}

// Products whose halves and quarters are whole.
inline std::vector<NamedDag> EvenProducts() {
  return {
      {"product", Product(24, 40, 32)},
      {"conv3x3", Convolution({8, 6, 8, 16, 3, 1, 1}, true)},
  };
}

}  // namespace diapason::testing
