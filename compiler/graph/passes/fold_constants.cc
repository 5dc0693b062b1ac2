#include <algorithm>

#include "base/check.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/operator.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/canonical_views.h"
#include "compiler/graph/passes/constants.h"

namespace diapason {
namespace {

// Work, in elements read or written, that the interpreter may do for one node: some hundredths of a second, or up to a
// second for what is no larger than the constants that it is made of. Larger results, such as weights of 8-bit integers
// in float32, take less memory if they are computed where they are used.
constexpr int64_t kInterpretedElements = 1 << 20, kMostInterpretedElements = 1 << 26;

bool IsView(const Network& network, const Node& node) {
  const Operator& op = *FindOperator(node.op);
  return op.is_view && op.is_view(ArgsOf(network, node));
}

// Products for each element of the result, of convolutions and products of matrices.
int64_t DepthOf(const Network& network, const Node& node) {
  auto shape = [&](int input) -> const std::vector<int64_t>& { return network.tensors[node.inputs[input]].type.shape; };
  if (node.op == "matmul") return shape(0).back();
  if (node.op == "gemm") return shape(0)[node.attributes.Int("trans_a", 0) != 0 ? 0 : 1];
  if (node.op.rfind("conv", 0) != 0 || node.op == "concat") return 1;
  // No more than the weights of all output channels.
  const int64_t weights = network.tensors[node.inputs[1]].type.elements();
  return node.op == "conv2d" ? weights / shape(1)[node.attributes.String("layout", "NCHW") == "NHWC" ? 3 : 0] : weights;
}

bool CheapToInterpret(const Network& network, const Node& node) {
  const TensorType& output = network.tensors[node.output].type;
  int64_t work = output.elements() * DepthOf(network, node), most_bytes = 0;
  for (int input : node.inputs) {
    const TensorType& type = network.tensors[input].type;
    work = std::max(work, type.elements());
    most_bytes = std::max(most_bytes, type.elements() * BytesOf(type.dtype));
  }
  const bool grows = output.elements() * BytesOf(output.dtype) > most_bytes;
  return work <= (grows ? kInterpretedElements : kMostInterpretedElements);
}

// A zero point that is taken off.
bool SubtractsIntegers(const Network& network, const Node& node) {
  const auto type = [&](int input) -> const TensorType& { return network.tensors[node.inputs[input]].type; };
  return node.op == "sub" && type(0).dtype == DType::kInt32 && type(1).dtype == DType::kInt32 &&
         type(0).shape == network.tensors[node.output].type.shape;
}

// What is done without the interpreter, and so for any number of elements.
bool IsDirect(const Network& network, const Node& node) {
  return node.op == "transpose" || node.op == "cast" || IsView(network, node) || SubtractsIntegers(network, node);
}

absl::StatusOr<Array> Evaluate(const Network& network, const Node& node) {
  const Array& first = *network.tensors[node.inputs[0]].data;
  const TensorType& type = network.tensors[node.output].type;
  if (IsView(network, node)) return ReshapeArray(first, type.shape);
  if (node.op == "transpose") return TransposeArray(first, PermutationOf(node, first.shape.size()));
  if (node.op == "cast") return CastArray(first, type.dtype);
  if (SubtractsIntegers(network, node)) return SubtractIntegers(first, *network.tensors[node.inputs[1]].data);
  return EvaluateNode(network, node);
}

}  // namespace

absl::Status FoldConstants(Network& network) {
  std::vector<Node> rest;
  for (Node& node : network.nodes) {
    bool constant =
        std::all_of(node.inputs.begin(), node.inputs.end(), [&](int id) { return network.tensors[id].constant(); });
    if (!constant || !(IsDirect(network, node) || CheapToInterpret(network, node))) {
      rest.push_back(std::move(node));
      continue;
    }
    ASSIGN_OR_RETURN(Array value, Evaluate(network, node));
    network.tensors[node.output].data = std::make_shared<const Array>(std::move(value));
  }
  network.nodes = std::move(rest);
  return absl::OkStatus();
}

}  // namespace diapason
