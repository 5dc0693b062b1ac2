#include "compiler/graph/builtin_layers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {

NetworkBuilder BeginNetwork(const std::string& name, const BuiltinArgs& args) {
  return NetworkBuilder(name, *args.options, static_cast<uint64_t>(args.at("seed")));
}

absl::Status CheckDivides(const std::string& network, const BuiltinArgs& args, const std::string& divisor,
                          const std::string& whole) {
  if (args.at(whole) % args.at(divisor) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("option '", divisor, "' of network '", network, "' cannot be ",
                                                 args.at(divisor), ": it must divide '", whole, "', which is ",
                                                 args.at(whole)));
}

int ImageInput(NetworkBuilder& b, const BuiltinArgs& args) {
  return b.Input("data", b.ImageShape(3, args.at("image"), args.at("image")));
}

int ClassifierOutput(NetworkBuilder& b, int x, const BuiltinArgs& args) {
  return args.at("softmax") ? b.Node("softmax", {x}, {}, "softmax") : x;
}

int64_t Narrowed(int64_t channels, const BuiltinArgs& args) {
  return std::max<int64_t>(1, (channels * args.at("width") + 50) / 100);
}

int Scalar(NetworkBuilder& b, double value, const std::string& name) {
  Array array(DType::kFloat32, {});
  array.set(0, value);
  return b.Constant(name, std::move(array));
}

int Reshape(NetworkBuilder& b, int x, std::vector<int64_t> shape, const std::string& name) {
  return b.Node("reshape", {x}, {{"shape", std::move(shape)}}, name);
}

int Transpose(NetworkBuilder& b, int x, std::vector<int64_t> perm, const std::string& name) {
  return b.Node("transpose", {x}, {{"perm", std::move(perm)}}, name);
}

int Slice(NetworkBuilder& b, int x, int64_t axis, SliceRange range, const std::string& name) {
  using Ints = std::vector<int64_t>;
  return b.Node("slice", {x}, {{"starts", Ints{range.start}}, {"ends", Ints{range.end}}, {"axes", Ints{axis}}}, name);
}

int Concat(NetworkBuilder& b, std::vector<int> parts, int64_t axis, const std::string& name) {
  return b.Node("concat", std::move(parts), {{"axis", axis}}, name);
}

int Upsample(NetworkBuilder& b, int x, const std::string& name) {
  // As the importer does a Resize by nearest neighbours.
  const int first = b.nhwc() ? 1 : 2;
  for (int axis = first; axis < first + 2; ++axis) {
    Array indices(DType::kInt64, {2 * b.Extent(x, axis)});
    for (int64_t i = 0; i < indices.elements(); ++i) indices.set_int(i, i / 2);
    const std::string gather = absl::StrCat(name, axis == first ? ".rows" : ".columns");
    const int places = b.Constant(gather + ".indices", std::move(indices));
    x = b.Node("gather", {x, places}, {{"axis", int64_t{axis}}}, gather);
  }
  return x;
}

int ChannelsLast(NetworkBuilder& b, int x, const std::string& name) {
  return b.nhwc() ? x : Transpose(b, x, {0, 2, 3, 1}, name);
}

int FromChannelsLast(NetworkBuilder& b, int x, const std::string& name) {
  return b.nhwc() ? x : Transpose(b, x, {0, 3, 1, 2}, name);
}

int Silu(NetworkBuilder& b, int x, const std::string& name) {
  return b.Node("mul", {x, b.Node("sigmoid", {x}, {}, name + ".sigmoid")}, {}, name);
}

int Linear(NetworkBuilder& b, int x, int64_t columns, const std::string& name, LinearOptions options) {
  const int64_t rows = b.Extent(x, -1);
  const float bound = options.gain * std::sqrt(3.0f / static_cast<float>(rows));
  const int product = b.Node("matmul", {x, b.Constant(name + ".weight", {rows, columns}, -bound, bound)}, {}, name);
  if (!options.bias) return product;
  return b.Node("add", {product, b.Constant(name + ".bias", {columns}, -0.1f, 0.1f)}, {}, name + ".add");
}

int LayerNorm(NetworkBuilder& b, int x, const std::string& name, double epsilon) {
  const int64_t size = b.Extent(x, -1);
  int y = b.Node("layer_norm", {x}, {{"axis", int64_t{-1}}, {"epsilon", epsilon}}, name);
  y = b.Node("mul", {y, b.Constant(name + ".weight", {size}, 0.8f, 1.2f)}, {}, name + ".mul");
  return b.Node("add", {y, b.Constant(name + ".bias", {size}, -0.1f, 0.1f)}, {}, name + ".add");
}

int RmsNorm(NetworkBuilder& b, int x, const std::string& name, double epsilon) {
  const int64_t size = b.Extent(x, -1);
  const int y = b.Node("rms_norm", {x}, {{"axis", int64_t{-1}}, {"epsilon", epsilon}}, name);
  return b.Node("mul", {y, b.Constant(name + ".weight", {size}, 0.8f, 1.2f)}, {}, name + ".mul");
}

int TokenInput(NetworkBuilder& b, const std::string& name, int64_t length) {
  return b.Input(name, {1, length}, DType::kInt64);
}

int MaskBias(NetworkBuilder& b, int mask, const ModelOptions& options) {
  int x = b.Node("unsqueeze", {mask}, {{"axes", std::vector<int64_t>{1, 2}}}, "mask.unsqueezed");
  x = b.Node("cast", {x}, {{"to", std::string("float32")}}, "mask.cast");
  x = b.Node("sub", {Scalar(b, 1, "mask.one"), x}, {}, "mask.hidden");
  return b.Node("mul", {x, Scalar(b, -LargestOf(options.dtype), "mask.lowest")}, {}, "mask.bias");
}

int Embedding(NetworkBuilder& b, int ids, int64_t rows, int64_t columns, const std::string& name) {
  const int weight = b.Constant(name + ".weight", {rows, columns}, -1, 1);
  return b.Node("gather", {weight, ids}, {{"axis", int64_t{0}}}, name);
}

int SplitHeads(NetworkBuilder& b, int x, int64_t heads, const std::string& name) {
  return Transpose(b, Reshape(b, x, {0, 0, heads, b.Extent(x, -1) / heads}, name + ".split"), {0, 2, 1, 3},
                   name + ".heads");
}

int JoinHeads(NetworkBuilder& b, int x, const std::string& name) {
  const int64_t hidden = b.Extent(x, 1) * b.Extent(x, 3);
  return Reshape(b, Transpose(b, x, {0, 2, 1, 3}, name + ".rows"), {0, 0, hidden}, name + ".joined");
}

double ScaleOf(int64_t size) { return 1 / std::sqrt(static_cast<double>(size)); }

int Attend(NetworkBuilder& b, const AttentionArgs& args, const std::string& name) {
  const int64_t heads = b.Extent(args.q, 1), groups = b.Extent(args.k, 1), size = b.Extent(args.q, 3);
  const int64_t queries = b.Extent(args.q, 2), keys = b.Extent(args.k, 2);
  int q = args.q, k = Transpose(b, args.k, {0, 1, 3, 2}, name + ".keys"), v = args.v, bias = args.bias;
  if (heads != groups) {
    // Heads that share keys and values are a dimension of their own, along which those are broadcast.
    q = Reshape(b, q, {0, groups, heads / groups, queries, size}, name + ".grouped_queries");
    k = Reshape(b, k, {0, groups, 1, size, keys}, name + ".grouped_keys");
    v = Reshape(b, v, {0, groups, 1, keys, size}, name + ".grouped_values");
    if (bias >= 0 && b.Extent(bias, -4) > 1)
      bias = Reshape(b, bias, {0, 1, 1, b.Extent(bias, -2), keys}, name + ".grouped_bias");
  }
  int scores = b.Node("matmul", {q, k}, {}, name + ".scores");
  if (args.scale != 1) scores = b.Node("mul", {scores, Scalar(b, args.scale, name + ".scale")}, {}, name + ".scaled");
  if (bias >= 0) scores = b.Node("add", {scores, bias}, {}, name + ".biased");
  const int weights = b.Node("softmax", {scores}, {{"axis", int64_t{-1}}}, name + ".softmax");
  const int y = b.Node("matmul", {weights, v}, {}, name + ".context");
  return heads == groups ? y : Reshape(b, y, {0, heads, queries, size}, name + ".heads");
}

int CausalBias(NetworkBuilder& b, int64_t queries, int64_t past, const std::string& name) {
  Array bias(DType::kFloat32, {queries, past + queries});
  for (int64_t i = 0; i < queries; ++i) {
    float* row = bias.as<float>() + i * (past + queries);
    std::fill(row + past + i + 1, row + past + queries, -std::numeric_limits<float>::infinity());
  }
  return b.Constant(name, std::move(bias));
}

}  // namespace diapason
