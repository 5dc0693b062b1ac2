// Softmax and its logarithm. Before opset 13 over all axes from `axis` on, as one; from there on over one axis.
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

absl::Status ImportSoftmaxOf(NodeImporter& node, const char* op) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  if (node.opset() >= 13) return node.Emit(op, {x}, {{"axis", node.Int("axis", -1)}});
  int64_t rank = static_cast<int64_t>(x->type.shape.size()), axis = node.Int("axis", 1);
  if (axis < -rank || axis > rank) {
    return absl::InvalidArgumentError(absl::StrCat("axis ", axis, " is outside of ", x->type.ToString()));
  }
  if (axis < 0) axis += rank;
  if (axis == rank - 1) return node.Emit(op, {x}, {{"axis", int64_t{-1}}});
  ASSIGN_OR_RETURN(ImportValue rows, node.Add("flatten", {x}, {{"axis", axis}}));
  ASSIGN_OR_RETURN(ImportValue result, node.Add(op, {rows}, {{"axis", int64_t{-1}}}));
  return node.Emit("reshape", {result}, {{"shape", x->type.shape}});
}

absl::Status ImportSoftmax(NodeImporter& node) { return ImportSoftmaxOf(node, "softmax"); }
absl::Status ImportLogSoftmax(NodeImporter& node) { return ImportSoftmaxOf(node, "log_softmax"); }

}  // namespace

std::vector<OnnxRule> Softmax() { return {{"Softmax", ImportSoftmax}, {"LogSoftmax", ImportLogSoftmax}}; }

}  // namespace diapason::onnx_rules
