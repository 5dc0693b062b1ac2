// Elements of one axis chosen by indices.
#include "absl/strings/str_cat.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"
#include "compiler/tensor/check.h"

namespace diapason::onnx_rules {
namespace {

// Indices that are known must lie inside; others are a matter of those who feed the network.
absl::Status CheckIndices(const Array& indices, int64_t extent) {
  for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
    int64_t index = indices.int_at(i);
    if (index >= -extent && index < extent) continue;
    return absl::InvalidArgumentError(absl::StrCat("index ", index, " is outside of an axis of ", extent));
  }
  return absl::OkStatus();
}

absl::Status Import(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue indices, node.Input(1));
  const int64_t given = node.Int("axis", 0);
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(given, x));
  if (indices->value) RETURN_IF_ERROR(CheckIndices(*indices->value, x->type.shape[axis]));
  return node.Emit("gather", {x, indices}, {{"axis", given}});
}

}  // namespace

std::vector<OnnxRule> Gather() { return {{"Gather", Import}}; }

}  // namespace diapason::onnx_rules
