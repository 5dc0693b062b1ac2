// Tensors one behind the other along an axis.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportConcat(NodeImporter& node) {
  ASSIGN_OR_RETURN(std::vector<ImportValue> inputs, node.Inputs());
  int64_t axis = node.Int("axis", 1);
  // Chains that compute shapes may hold empty lists, and splits give empty parts.
  std::vector<ImportValue> parts;
  for (const ImportValue& input : inputs) {
    if (input->type.elements() > 0) parts.push_back(input);
  }
  if (parts.empty()) parts = inputs;  // the result is empty too
  return node.Emit("concat", parts, {{"axis", axis}});
}

}  // namespace

std::vector<OnnxRule> Concat() { return {{"Concat", ImportConcat}}; }

}  // namespace diapason::onnx_rules
