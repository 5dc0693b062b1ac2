// Padding: attributes before opset 11, inputs from there on.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportPad(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(NodeImporter::OptionalInts pads, node.IntsByOpset("pads", 11, 1));
  int64_t rank = static_cast<int64_t>(x->type.shape.size());
  if (node.HasInput(3)) {  // from opset 18 on: the axes that the pads are for
    ASSIGN_OR_RETURN(std::vector<int64_t> axes, node.KnownInts(3, "the axes"));
    std::vector<int64_t> all(2 * rank, 0);
    if (pads.values.size() != 2 * axes.size()) {
      return absl::InvalidArgumentError(absl::StrCat(pads.values.size(), " pads are given for ", axes.size(), " axes"));
    }
    for (size_t k = 0; k < axes.size(); ++k) {
      ASSIGN_OR_RETURN(int64_t axis, NormalAxis(axes[k], x));
      all[axis] = pads.values[k];
      all[axis + rank] = pads.values[k + axes.size()];
    }
    pads.values = all;
  }
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

std::vector<OnnxRule> Pad() { return {{"Pad", ImportPad}}; }

}  // namespace diapason::onnx_rules
