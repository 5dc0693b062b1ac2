#include "compiler/graph/operator.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {

OperatorArgs ArgsOf(const Network& network, const Node& node) {
  OperatorArgs args;
  for (int id : node.inputs) {
    args.inputs.push_back(network.tensors[id].type);
    args.values.push_back(network.tensors[id].data.get());
  }
  args.attributes = &node.attributes;
  if (node.output >= 0) args.output = network.tensors[node.output].type;
  return args;
}

absl::StatusOr<TensorType> InferNode(const Network& network, const Node& node) {
  auto fail = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("node '", node.name, "' (", node.op, "): ", why));
  };
  const Operator* op = FindOperator(node.op);
  if (!op) return fail("there is no such operator");
  int count = static_cast<int>(node.inputs.size());
  if (count < op->min_inputs || (op->max_inputs >= 0 && count > op->max_inputs)) {
    std::string range = op->max_inputs == op->min_inputs ? absl::StrCat(op->min_inputs)
                        : op->max_inputs < 0             ? absl::StrCat(op->min_inputs, " or more")
                                                         : absl::StrCat(op->min_inputs, " to ", op->max_inputs);
    return fail(absl::StrCat("takes ", range, " inputs, not ", count));
  }
  absl::StatusOr<TensorType> type = op->infer(ArgsOf(network, node));
  if (!type.ok()) return fail(std::string(type.status().message()));
  for (int64_t extent : type->shape) {
    if (extent <= 0) return fail(absl::StrCat("the result would be empty (", type->ToString(), ")"));
  }
  return type;
}

}  // namespace diapason
