// Padding: attributes before opset 11, inputs from there on.
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

absl::Status Import(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts pads, node.IntsByOpset("pads", 11, 1));
  double value = 0;
  if (node.opset() < 11) {
    value = node.Float("value", 0);
  } else if (node.HasInput(2)) {
    ASSIGN_OR_RETURN(ImportValue fill, node.Input(2));
    if (!fill->value || fill->value->elements() != 1) {
      return absl::InvalidArgumentError("input 2 (the value to pad with) must be a constant of one element");
    }
    value = fill->value->at(0);
  }
  for (int64_t pad : pads.values) {
    if (pad < -(int64_t{1} << 31) || pad > int64_t{1} << 31) return absl::InvalidArgumentError("pads are too large");
  }
  return node.Emit("pad", {x}, {{"pads", pads.values}, {"mode", node.String("mode", "constant")}, {"value", value}});
}

}  // namespace

std::vector<OnnxRule> Pad() { return {{"Pad", Import}}; }

}  // namespace diapason::onnx_rules
