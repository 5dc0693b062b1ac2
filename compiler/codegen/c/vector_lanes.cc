#include "compiler/codegen/c/vector_lanes.h"

namespace diapason {

Expr VectorLanes::At(const Expr& e, int64_t lane) const {
  return analyzer_.Simplify(Substitute(e, {{var_.get(), IntImm(lane)}}));
}

std::optional<VectorLanes::AllOrNone> VectorLanes::Decide(const Expr& condition) const {
  if (!Differ(condition)) return AllOrNone{condition, Not(condition)};
  switch (condition->kind) {
    case ExprKind::kLt:
    case ExprKind::kLe: {
      // The difference of the sides goes one way along the lanes, so the first and the last lane decide.
      if (IsFloat(condition->args[0]->dtype)) return std::nullopt;
      if (!StrideAlong(Sub(condition->args[0], condition->args[1])).affine) return std::nullopt;
      const Expr first = At(condition, 0), last = At(condition, count_ - 1);
      return AllOrNone{analyzer_.Simplify(And(first, last)), analyzer_.Simplify(And(Not(first), Not(last)))};
    }
    case ExprKind::kNot: {
      const std::optional<AllOrNone> inner = Decide(condition->args[0]);
      if (!inner) return std::nullopt;
      return AllOrNone{inner->none, inner->all};
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      const std::optional<AllOrNone> a = Decide(condition->args[0]), b = Decide(condition->args[1]);
      if (!a || !b) return std::nullopt;
      const bool both = condition->kind == ExprKind::kAnd;
      return AllOrNone{analyzer_.Simplify(both ? And(a->all, b->all) : Or(a->all, b->all)),
                       analyzer_.Simplify(both ? Or(a->none, b->none) : And(a->none, b->none))};
    }
    default: return std::nullopt;
  }
}

Expr VectorLanes::FindDecidable(const Expr& value) const {
  if (value->kind == ExprKind::kSelect && Differ(value->args[0]) && Decide(value->args[0])) return value->args[0];
  for (const Expr& arg : value->args)
    if (Expr found = FindDecidable(arg)) return found;
  return nullptr;
}

}  // namespace diapason
