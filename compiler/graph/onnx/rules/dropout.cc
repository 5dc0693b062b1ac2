// Dropout: nothing happens at inference.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

bool Known(const ImportValue& value, double number) {
  return value->value && value->type.elements() == 1 && value->value->at(0) == number;
}

// In training mode too where nothing is dropped. The mask is all ones then; before opset 10 it has the type of x.
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
    const DType type = node.opset() < 10 ? x->type.dtype : DType::kBool;
    if (!node.SpendConstantBytes(count * BytesOf(type)))
      return absl::InvalidArgumentError(absl::StrCat("its mask of ", count, " elements is used, which is too large"));
    Array mask(type, x->type.shape);
    for (int64_t i = 0; i < count; ++i) mask.set(i, 1);
    node.Set(1, KnownValue(std::move(mask), node.node().name));
  }
  return node.Emit("identity", {x});
}

}  // namespace

std::vector<OnnxRule> Dropout() { return {{"Dropout", ImportDropout}}; }

}  // namespace diapason::onnx_rules
