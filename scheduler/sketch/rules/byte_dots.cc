#include "scheduler/sketch/rules/byte_dots.h"

#include <set>
#include <utility>

#include "compiler/tensor/processor.h"

namespace diapason {

int DimensionOf(const Draft& draft, int constant, int reader, const Expr& axis) {
  std::set<int> dimensions;
  Visit(draft.state().stage(reader).op.body, [&](const ExprNode& e) {
    if (e.kind != ExprKind::kLoad || e.buffer != constant) return;
    for (size_t d = 0; d < e.args.size(); ++d)
      if (e.args[d] == axis) dimensions.insert(static_cast<int>(d));
  });
  return dimensions.size() == 1 ? *dimensions.begin() : -1;
}

std::optional<int> DotAxis(const Draft& draft, int stage) {
  const StageState& s = draft.state().stage(stage);
  const Expr& body = s.op.body;
  if (draft.gpu() || s.op.dtype != DType::kInt32 || s.op.combiner != Combiner::kSum || body->kind != ExprKind::kMul)
    return std::nullopt;
  Expr left = ByteFactor(body->args[0]), right = ByteFactor(body->args[1]);
  if (left == nullptr || right == nullptr) return std::nullopt;
  if (!draft.state().stage(right->buffer).prologue) std::swap(left, right);
  if (!draft.state().stage(right->buffer).prologue || draft.state().Consumers(right->buffer).size() != 1 ||
      DimensionOf(draft, right->buffer, stage, s.op.axes.back().var) < 0)
    return std::nullopt;
  for (int axis : ReduceAxes(draft.state(), stage)) {
    const Axis& a = s.axis(axis);
    if (a.extent % kDotBytes == 0 && left->args.back() == a.var && DimensionOf(draft, right->buffer, stage, a.var) >= 0)
      return axis;
  }
  return std::nullopt;
}

}  // namespace diapason
