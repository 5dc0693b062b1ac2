#include <cmath>

#include "base/check.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {
namespace {

// A batch norm with constant parameters as y = x * factor + offset, one pair a channel.
struct ScaleShift {
  std::vector<double> factor, offset;
};

bool ConstantInputs(const Network& network, const Node& node, size_t first) {
  for (size_t i = first; i < node.inputs.size(); ++i) {
    if (!network.tensors[node.inputs[i]].constant()) return false;
  }
  return true;
}

ScaleShift ScaleShiftOf(const Network& network, const Node& norm) {
  auto parameter = [&](int input, int64_t c) { return network.tensors[norm.inputs[input]].data->at(c); };
  double epsilon = norm.attributes.Float("epsilon", 1e-5);
  ScaleShift out;
  for (int64_t c = 0, n = network.tensors[norm.inputs[1]].type.elements(); c < n; ++c) {
    out.factor.push_back(parameter(1, c) / std::sqrt(parameter(4, c) + epsilon));
    out.offset.push_back(parameter(2, c) - parameter(3, c) * out.factor.back());
  }
  return out;
}

// Dimension of the weights that runs over output channels.
int OutputChannelAxis(const Node& node) {
  if (node.op == "conv2d") return node.attributes.String("layout", "NCHW") == "NHWC" ? 3 : 0;
  return node.attributes.Int("trans_b", 0) != 0 ? 0 : 1;
}

bool Foldable(const Network& network, const Node& product, const Node& norm) {
  if (product.op != "conv2d" && product.op != "gemm") return false;
  if (!ConstantInputs(network, product, 1)) return false;
  size_t rank = network.tensors[product.output].type.shape.size();
  int64_t axis = norm.attributes.Int("axis", 1);
  if (axis < 0) axis += static_cast<int64_t>(rank);
  if (product.op == "conv2d") return axis == (product.attributes.String("layout", "NCHW") == "NHWC" ? 3 : 1);
  bool row_bias = product.inputs.size() < 3 || network.tensors[product.inputs[2]].type.shape.size() == 1;
  return axis == 1 && row_bias && product.attributes.Float("beta", 1) == 1;
}

void ScaleWeights(Network& network, Node& product, const ScaleShift& s) {
  const Array& old = *network.tensors[product.inputs[1]].data;
  Array weight = old;
  int axis = OutputChannelAxis(product);
  int64_t inner = 1, channels = old.shape[axis];
  for (size_t d = axis + 1; d < old.shape.size(); ++d) inner *= old.shape[d];
  for (int64_t i = 0, n = old.elements(); i < n; ++i) weight.set(i, old.at(i) * s.factor[i / inner % channels]);

  Array bias(old.dtype, {channels});
  const Array* before = product.inputs.size() == 3 ? network.tensors[product.inputs[2]].data.get() : nullptr;
  for (int64_t c = 0; c < channels; ++c) {
    // A gemm's bias may be one number for all.
    double b = before ? before->at(before->elements() == 1 ? 0 : c) : 0;
    bias.set(c, b * s.factor[c] + s.offset[c]);
  }
  // A gemm with alpha scales the weights only: bias is added behind it.
  product.inputs.resize(1);
  product.inputs.push_back(network.AddConstant(product.name + "_weight", std::move(weight)));
  product.inputs.push_back(network.AddConstant(product.name + "_bias", std::move(bias)));
}

// A multiplication and an addition in place of the norm.
absl::Status AppendScaleShift(Network& network, const Node& norm, const ScaleShift& s, std::vector<Node>& nodes) {
  const TensorType type = network.tensors[norm.output].type;
  int64_t axis = norm.attributes.Int("axis", 1);
  if (axis < 0) axis += static_cast<int64_t>(type.shape.size());
  std::vector<int64_t> shape(type.shape.size() - axis, 1);
  shape[0] = type.shape[axis];
  Array factor(type.dtype, shape), offset(type.dtype, shape);
  for (int64_t c = 0; c < shape[0]; ++c) {
    factor.set(c, s.factor[c]);
    offset.set(c, s.offset[c]);
  }
  int factors = network.AddConstant(norm.name + "_factor", std::move(factor));
  int offsets = network.AddConstant(norm.name + "_offset", std::move(offset));
  network.tensors.push_back({norm.name + "_scaled", type, nullptr});
  int scaled = static_cast<int>(network.tensors.size()) - 1;
  nodes.push_back({"mul", norm.name + "_mul", {}, {norm.inputs[0], factors}, scaled});
  nodes.push_back({"add", norm.name, {}, {scaled, offsets}, norm.output});
  return absl::OkStatus();
}

}  // namespace

absl::Status FoldBatchNorm(Network& network) {
  std::vector<std::vector<int>> consumers = network.Consumers();
  std::vector<int> node_of(network.tensors.size(), -1);  // tensor -> position in `nodes`
  std::vector<Node> nodes;
  for (const Node& node : network.nodes) {
    if (node.op != "batch_norm" || !ConstantInputs(network, node, 1)) {
      node_of[node.output] = static_cast<int>(nodes.size());
      nodes.push_back(node);
      continue;
    }
    ScaleShift s = ScaleShiftOf(network, node);
    int x = node.inputs[0];
    int from = node_of[x];
    bool only_reader = consumers[x].size() == 1 && !network.is_output(x);
    if (from >= 0 && only_reader && Foldable(network, nodes[from], node)) {
      ScaleWeights(network, nodes[from], s);
      nodes[from].output = node.output;
      node_of[node.output] = from;
      continue;
    }
    RETURN_IF_ERROR(AppendScaleShift(network, node, s, nodes));
    node_of[node.output] = static_cast<int>(nodes.size()) - 1;
  }
  network.nodes = std::move(nodes);
  return absl::OkStatus();
}

}  // namespace diapason
