// Dropout: nothing happens at inference.
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

absl::Status Import(NodeImporter& node) {
  node.Ignore({"ratio", "seed"});
  node.IgnoreInput(1);  // the ratio
  if (node.HasInput(2)) {  // from opset 12 on
    ASSIGN_OR_RETURN(ImportValue training, node.Input(2));
    bool off = training->value && training->value->elements() == 1 && training->value->int_at(0) == 0;
    if (!off) {
      return absl::InvalidArgumentError(
          "it is, or may be, in training mode, which is not supported: export the model for inference");
    }
  }
  if (node.IsRead(1)) return absl::InvalidArgumentError("its mask is used, which is not supported");
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  return node.Emit("identity", {x});
}

}  // namespace

std::vector<OnnxRule> Dropout() { return {{"Dropout", Import}}; }

}  // namespace diapason::onnx_rules
