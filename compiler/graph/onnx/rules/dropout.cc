// Dropout: nothing happens at inference.
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

bool Known(const ImportValue& value, double number) {
  return value->value && value->type.elements() == 1 && value->value->at(0) == number;
}

// In training mode too where nothing is dropped. The mask is all true then.
absl::Status ImportDropout(NodeImporter& node) {
  node.Ignore({"ratio", "seed"});
  node.IgnoreInput(1);  // the ratio
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  if (node.HasInput(2)) {  // from opset 12 on
    ASSIGN_OR_RETURN(ImportValue training, node.Input(2));
    bool nothing = false;
    if (node.HasInput(1)) {
      ASSIGN_OR_RETURN(ImportValue ratio, node.Input(1));
      nothing = Known(ratio, 0);
    }
    if (!nothing && !Known(training, 0)) {
      return absl::InvalidArgumentError(
          "it is, or may be, in training mode, which is not supported: export the model for inference");
    }
  }
  if (node.IsRead(1)) {
    const int64_t count = x->type.elements();
    if (node.opset() < 12 || !node.SpendConstantBytes(count)) {
      return absl::InvalidArgumentError("its mask is used, which is not supported");
    }
    Array mask(DType::kBool, x->type.shape);
    for (int64_t i = 0; i < count; ++i) mask.set_int(i, 1);
    node.Set(1, KnownValue(std::move(mask), node.node().name));
  }
  return node.Emit("identity", {x});
}

}  // namespace

std::vector<OnnxRule> Dropout() { return {{"Dropout", ImportDropout}}; }

}  // namespace diapason::onnx_rules
