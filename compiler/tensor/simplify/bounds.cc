#include "compiler/tensor/simplify/bounds.h"

#include <algorithm>

namespace diapason::simplify {
namespace {

std::optional<Interval> BoundsOfRemainder(const std::optional<Interval>& a, int64_t d) {
  if (a && FloorDivInt(a->min, d) == FloorDivInt(a->max, d))
    return Interval{FloorModInt(a->min, d), FloorModInt(a->max, d)};
  return Checked({0, d - 1});
}

}  // namespace

std::optional<Interval> CanonicalBounds::Of(const Expr& e) {
  if (IsKind(e, ExprKind::kIntImm)) return Checked({e->value, e->value});
  if (IsKind(e, ExprKind::kVar)) return ranges_.Of(e.get());
  if (auto it = known_.find(e.get()); it != known_.end()) return it->second.bounds;
  std::optional<Interval> bounds = Compute(e);
  known_.emplace(e.get(), Known{e, bounds});
  return bounds;
}

std::optional<Interval> CanonicalBounds::Of(const Affine& a) {
  Interval sum{a.constant, a.constant};
  if (!IsSmall(a.constant)) return std::nullopt;
  for (const auto& [term, coefficient] : a.terms) {
    const std::optional<Interval> range = Of(term);
    if (!range) return std::nullopt;
    const std::optional<Interval> scaled = Product(*range, {coefficient, coefficient});
    if (!scaled) return std::nullopt;
    sum = {sum.min + scaled->min, sum.max + scaled->max};
    if (!Checked(sum)) return std::nullopt;
  }
  return sum;
}

std::optional<Interval> CanonicalBounds::Compute(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kAdd:
    case ExprKind::kSub: return Of(Decomposed(e));
    case ExprKind::kMul: {
      const std::optional<Interval> a = Of(e->args[0]), b = Of(e->args[1]);
      if (!a || !b) return std::nullopt;
      return Product(*a, *b);
    }
    case ExprKind::kFloorDiv: {
      const std::optional<Interval> a = Of(e->args[0]);
      if (!a) return std::nullopt;
      return Interval{FloorDivInt(a->min, DivisorOf(e)), FloorDivInt(a->max, DivisorOf(e))};
    }
    case ExprKind::kFloorMod: return BoundsOfRemainder(Of(e->args[0]), DivisorOf(e));
    case ExprKind::kMin:
    case ExprKind::kMax: return OfExtremum(e);
    case ExprKind::kSelect: {
      const std::optional<Interval> a = Of(e->args[1]), b = Of(e->args[2]);
      if (!a || !b) return std::nullopt;
      return Interval{std::min(a->min, b->min), std::max(a->max, b->max)};
    }
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kEq:
    case ExprKind::kNe:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot: return Interval{0, 1};
    case ExprKind::kCast: return OfCast(e);
    default: return std::nullopt;
  }
}

std::optional<Interval> CanonicalBounds::OfExtremum(const Expr& e) {
  const std::optional<Interval> a = Of(e->args[0]), b = Of(e->args[1]);
  if (!a || !b) return std::nullopt;
  if (IsKind(e, ExprKind::kMin)) return Interval{std::min(a->min, b->min), std::min(a->max, b->max)};
  return Interval{std::max(a->min, b->min), std::max(a->max, b->max)};
}

std::optional<Interval> CanonicalBounds::OfCast(const Expr& e) {
  if (IsFloat(e->dtype) || IsFloat(e->args[0]->dtype)) return std::nullopt;
  const std::optional<Interval> a = Of(e->args[0]);
  if (!a) return std::nullopt;
  const bool fits = IntImm(a->min, e->dtype)->value == a->min && IntImm(a->max, e->dtype)->value == a->max;
  return fits ? a : std::nullopt;
}

}  // namespace diapason::simplify
