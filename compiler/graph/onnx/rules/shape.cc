// Shapes as tensors: known while importing, since shapes are static.
#include <algorithm>

#include "base/check.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// From opset 15 on of a range of the axes, clamped.
absl::Status ImportShape(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  int64_t rank = static_cast<int64_t>(x->type.shape.size());
  auto clamp = [&](int64_t axis) { return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank); };
  int64_t start = clamp(node.Int("start", 0)), end = clamp(node.Int("end", rank));
  Array shape(DType::kInt64, {std::max<int64_t>(end - start, 0)});
  for (int64_t d = start; d < end; ++d) shape.set_int(d - start, x->type.shape[d]);
  node.Set(0, KnownValue(std::move(shape), node.node().name));
  return absl::OkStatus();
}

absl::Status ImportSize(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  Array size(DType::kInt64, {});
  size.set_int(0, x->type.elements());
  node.Set(0, KnownValue(std::move(size), node.node().name));
  return absl::OkStatus();
}

}  // namespace

std::vector<OnnxRule> Shape() { return {{"Shape", ImportShape}, {"Size", ImportSize}}; }

}  // namespace diapason::onnx_rules
