// Batch normalisation at inference.
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportBatchNormalization(NodeImporter& node) {
  // Before opset 14 training shows by further results; then by an attribute. Opset 7 and 8 have per-element statistics.
  bool training = node.Int("training_mode", 0) != 0;
  for (size_t i = 1; i < node.node().outputs.size(); ++i) training |= !node.node().outputs[i].empty();
  if (training) {
    return absl::InvalidArgumentError("it is in training mode, which is not supported: export the model for inference");
  }
  if (node.Int("spatial", 1) == 0) {
    return absl::InvalidArgumentError("spatial=0 (statistics for each element) is not supported");
  }
  node.Ignore({"momentum"});
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  if (inputs.size() != 5) return absl::InvalidArgumentError("it must have 5 inputs");
  // From opset 15 on, parameters may have another type.
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i]->type.dtype == inputs[0]->type.dtype) continue;
    ASSIGN_OR_RETURN(inputs[i], node.Add("cast", {inputs[i]}, {{"to", NameOf(inputs[0]->type.dtype)}}));
  }
  return node.Emit("batch_norm", inputs, {{"axis", int64_t{1}}, {"epsilon", node.Float("epsilon", 1e-5)}});
}

}  // namespace

std::vector<OnnxRule> BatchNormalization() { return {{"BatchNormalization", ImportBatchNormalization}}; }

}  // namespace diapason::onnx_rules
