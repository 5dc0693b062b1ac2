#include "compiler/graph/network_builder.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"

namespace diapason {

uint64_t WeightRandom::Next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

float WeightRandom::Uniform(float low, float high) {
  return low + (high - low) * static_cast<float>(static_cast<double>(Next() >> 40) * 0x1p-24);
}

NetworkBuilder::NetworkBuilder(std::string name, const ModelOptions& options, uint64_t seed)
    : options_(options), layout_(NameOf(options.layout)), random_(seed) {
  network_.name = std::move(name);
}

std::vector<int64_t> NetworkBuilder::ImageShape(int64_t channels, int64_t height, int64_t width) const {
  return nhwc() ? std::vector<int64_t>{1, height, width, channels} : std::vector<int64_t>{1, channels, height, width};
}

int NetworkBuilder::Input(const std::string& name, std::vector<int64_t> shape, DType dtype) {
  if (options_.batch > 0) shape[0] = options_.batch;
  auto given = options_.input_shapes.find(name);
  if (given != options_.input_shapes.end()) {
    bool fits = given->second.size() == shape.size();
    for (int64_t extent : given->second) fits = fits && extent > 0;
    if (fits && options_.batch > 0) fits = given->second[0] == options_.batch;
    if (!fits && error_.ok()) {
      error_ = absl::InvalidArgumentError(absl::StrCat("input '", name, "' cannot have shape ",
                                                       absl::StrJoin(given->second, "x"), ": give it as ",
                                                       absl::StrJoin(shape, "x")));
    }
    if (fits) shape = given->second;
  }
  return network_.AddInput(name, {dtype, shape});
}

int NetworkBuilder::Constant(const std::string& name, std::vector<int64_t> shape, float low, float high) {
  Array array(DType::kFloat32, std::move(shape));
  float* values = array.as<float>();
  for (int64_t i = 0, n = array.elements(); i < n; ++i) values[i] = random_.Uniform(low, high);
  return network_.AddConstant(name, std::move(array));
}

int NetworkBuilder::Bytes(const std::string& name, std::vector<int64_t> shape) {
  Array array(DType::kInt8, std::move(shape));
  for (int64_t i = 0, n = array.elements(); i < n; ++i)
    array.set_int(i, static_cast<int64_t>(random_.Next() >> 56) - 128);
  return network_.AddConstant(name, std::move(array));
}

int NetworkBuilder::Node(const std::string& op, std::vector<int> inputs, Attributes attributes,
                         const std::string& name) {
  if (!error_.ok()) return 0;
  absl::StatusOr<int> id = network_.AddNode(op, std::move(inputs), std::move(attributes), name);
  if (id.ok()) return *id;
  error_ = id.status();
  return 0;
}

int64_t NetworkBuilder::ChannelsOf(int x) const {
  const std::vector<int64_t>& shape = network_.tensor(x).type.shape;
  return shape.size() == 4 ? shape[nhwc() ? 3 : 1] : shape.back();
}

int64_t NetworkBuilder::Extent(int x, int axis) const {
  const std::vector<int64_t>& shape = network_.tensor(x).type.shape;
  if (axis < 0) axis += static_cast<int>(shape.size());
  return axis >= 0 && axis < static_cast<int>(shape.size()) ? shape[axis] : 1;
}

void NetworkBuilder::Fail(absl::Status error) {
  if (error_.ok()) error_ = std::move(error);
}

int NetworkBuilder::Conv2d(int x, const Conv& c, const std::string& name) {
  int64_t in = std::max<int64_t>(ChannelsOf(x) / c.group, 1);
  const int64_t width = c.kernel_w > 0 ? c.kernel_w : c.kernel, side = c.pad_w >= 0 ? c.pad_w : c.pad;
  // Uniform on +-bound has variance bound^2 / 3, which should be 2 / (inputs of one result).
  float bound = std::sqrt(6.0f / static_cast<float>(in * c.kernel * width));
  std::vector<int64_t> shape = nhwc() ? std::vector<int64_t>{c.kernel, width, in, c.channels}
                                      : std::vector<int64_t>{c.channels, in, c.kernel, width};
  std::vector<int> inputs = {
      x, c.bytes ? Bytes(name + ".weight", shape) : Constant(name + ".weight", shape, -bound, bound)};
  if (c.bias && c.bytes) {
    Array bias(DType::kInt32, {c.channels});
    for (int64_t i = 0; i < c.channels; ++i) bias.set_int(i, static_cast<int64_t>(random_.Next() >> 52) - 2048);
    inputs.push_back(Constant(name + ".bias", std::move(bias)));
  } else if (c.bias) {
    inputs.push_back(Constant(name + ".bias", {c.channels}, -0.1f, 0.1f));
  }
  using Ints = std::vector<int64_t>;
  return Node("conv2d", inputs,
              {{"strides", Ints{c.stride, c.stride}},
               {"pads", Ints{c.pad, side, c.pad, side}},
               {"dilations", Ints{c.dilation, c.dilation}},
               {"group", c.group},
               {"layout", layout_}},
              name);
}

int NetworkBuilder::BatchNorm(int x, const std::string& name, float gain) {
  int64_t c = ChannelsOf(x);
  int scale = Constant(name + ".weight", {c}, 0.8f * gain, 1.2f * gain);
  int bias = Constant(name + ".bias", {c}, -0.1f, 0.1f);
  int mean = Constant(name + ".running_mean", {c}, -0.1f, 0.1f);
  int variance = Constant(name + ".running_var", {c}, 0.8f, 1.2f);
  return Node("batch_norm", {x, scale, bias, mean, variance}, {{"axis", int64_t{nhwc() ? 3 : 1}}}, name);
}

int NetworkBuilder::MaxPool(int x, const PoolWindow& window, const std::string& name) {
  using Ints = std::vector<int64_t>;
  return Node("max_pool", {x},
              {{"kernel", Ints{window.kernel, window.kernel}},
               {"strides", Ints{window.stride, window.stride}},
               {"pads", Ints(4, window.pad)},
               {"ceil_mode", int64_t{window.ceil_mode}},
               {"layout", layout_}},
              name);
}

int NetworkBuilder::AveragePool(int x, int64_t kernel, int64_t stride, int64_t pad, const std::string& name) {
  using Ints = std::vector<int64_t>;
  return Node("avg_pool", {x},
              {{"kernel", Ints{kernel, kernel}},
               {"strides", Ints{stride, stride}},
               {"pads", Ints(4, pad)},
               {"count_include_pad", int64_t{1}},
               {"layout", layout_}},
              name);
}

int NetworkBuilder::GlobalAverage(int x, const std::string& name, bool keep_image) {
  std::vector<int64_t> axes = nhwc() ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 3};
  return Node("reduce_mean", {x}, {{"axes", axes}, {"keepdims", int64_t{keep_image}}}, name);
}

int NetworkBuilder::Dense(int x, int64_t columns, const std::string& name) {
  int64_t rows = ChannelsOf(x);
  float bound = std::sqrt(3.0f / static_cast<float>(rows));
  int weight = Constant(name + ".weight", {rows, columns}, -bound, bound);
  int bias = Constant(name + ".bias", {columns}, -0.1f, 0.1f);
  return Node("gemm", {x, weight, bias}, {}, name);
}

absl::StatusOr<Network> NetworkBuilder::Finish(const std::vector<std::pair<std::string, int>>& outputs) {
  RETURN_IF_ERROR(error_);
  for (const auto& [name, shape] : options_.input_shapes) {
    bool known = false;
    std::vector<std::string> names;
    for (int input : network_.inputs) {
      names.push_back(network_.tensor(input).name);
      known = known || names.back() == name;
    }
    if (known) continue;
    return absl::InvalidArgumentError(absl::StrCat("network '", network_.name, "' has no input '", name,
                                                   "': its inputs are ", absl::StrJoin(names, ", ")));
  }
  for (const auto& [name, output] : outputs) {
    network_.tensors[output].name = name;
    network_.outputs.push_back(output);
  }
  return std::move(network_);
}

}  // namespace diapason
