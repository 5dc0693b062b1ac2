// Elements of one axis chosen by indices.
#include <optional>
#include <vector>

#include "base/check.h"
#include "compiler/graph/onnx/rules/composer.h"
#include "compiler/graph/onnx/rules/rules.h"

namespace diapason::onnx_rules {
namespace {

// Known places that follow each other are a slice, which costs nothing where it is read; nothing if they do not.
struct Run {
  int64_t start = 0, step = 1, count = 0;
};
std::optional<Run> RunOf(const Array& indices, int64_t extent) {
  auto place = [&](int64_t i) { return indices.int_at(i) + (indices.int_at(i) < 0 ? extent : 0); };
  Run run{0, 1, indices.elements()};
  if (run.count == 0 || IsFloat(indices.dtype) || indices.dtype == DType::kBool) return std::nullopt;
  run.start = place(0);
  if (run.count > 1) run.step = place(1) - place(0);
  if (run.step < 1) return std::nullopt;
  for (int64_t i = 1; i < run.count; ++i)
    if (place(i) != run.start + i * run.step) return std::nullopt;
  return run;
}

absl::Status ImportGather(NodeImporter& node) {
  ASSIGN_OR_RETURN(ImportValue x, node.Input(0));
  ASSIGN_OR_RETURN(ImportValue indices, node.Input(1));
  const int64_t given = node.Int("axis", 0);
  ASSIGN_OR_RETURN(int64_t axis, NormalAxis(given, x));
  const int64_t extent = x->type.shape[axis];
  RETURN_IF_ERROR(CheckIndices(indices, {extent}));
  // Rows that a filter found, with flags (found_rows.h): all of them.
  if (indices->found.own_place && indices->type.shape == std::vector<int64_t>{extent})
    return node.Emit("identity", {x});
  const std::optional<Run> run = indices->value && !x->value ? RunOf(*indices->value, extent) : std::nullopt;
  if (run) {
    Composer c(node);
    std::vector<int64_t> shape = x->type.shape;
    shape.erase(shape.begin() + axis);
    shape.insert(shape.begin() + axis, indices->type.shape.begin(), indices->type.shape.end());
    const int64_t end = run->start + (run->count - 1) * run->step + 1;
    return c.Finish(c.Reshape(c.Slice(x, axis, run->start, end, run->step), shape));
  }
  return node.Emit("gather", {x, indices}, {{"axis", given}});
}

}  // namespace

std::vector<OnnxRule> Gather() { return {{"Gather", ImportGather}}; }

}  // namespace diapason::onnx_rules
