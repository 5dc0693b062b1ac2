// Selects, and what their conditions say of the ranges of variables.
#include <algorithm>

#include "compiler/tensor/simplify/simplifier.h"

namespace diapason::simplify {
namespace {

// A select narrows ranges for its branches only this deep: every level simplifies what it shares with others anew.
constexpr int kMaxNarrowing = 8;

}  // namespace

Expr Simplifier::Choice(const Expr& e) {
  const Expr condition = Run(e->args[0]);
  if (IsKind(condition, ExprKind::kIntImm)) return Run(e->args[condition->value != 0 ? 1 : 2]);
  const Expr then_value = RunAssuming(condition, true, e->args[1]);
  const Expr else_value = RunAssuming(condition, false, e->args[2]);
  if (IsInt(then_value, 1) && IsInt(else_value, 0) && e->dtype == DType::kBool) return condition;
  if (IsInt(then_value, 0) && IsInt(else_value, 1) && e->dtype == DType::kBool) return Node(Not(condition));
  if (IsKind(then_value, ExprKind::kSelect) && Equal(then_value->args[2], else_value))
    return Node(Select(Conjunction(condition, then_value->args[0]), then_value->args[1], else_value));
  return Node(Select(condition, then_value, else_value));
}

Expr Simplifier::RunAssuming(const Expr& condition, bool holds, const Expr& e) {
  if (e->args.empty() && !IsKind(e, ExprKind::kVar)) return e;
  Narrowing narrowed;
  if (depth_ < kMaxNarrowing) Assume(condition, holds, narrowed);
  if (narrowed.empty()) return Run(e);
  narrowed.insert(narrowed.begin(), narrowed_.begin(), narrowed_.end());
  return Simplifier(*this, std::move(narrowed)).Run(e);
}

void Simplifier::Assume(const Expr& condition, bool holds, Narrowing& out) const {
  switch (condition->kind) {
    case ExprKind::kNot: Assume(condition->args[0], !holds, out); return;
    case ExprKind::kAnd:
    case ExprKind::kOr:
      if (holds != IsKind(condition, ExprKind::kAnd)) return;
      Assume(condition->args[0], holds, out);
      Assume(condition->args[1], holds, out);
      return;
    case ExprKind::kLt:
    case ExprKind::kLe:
      if (std::optional<Affine> order = AsLessThanZero(condition)) {
        if (!holds) {  // a >= 0  is  -a - 1 < 0
          *order = Scaled(*order, -1);
          order->constant = WrappingAdd(order->constant, -1);
        }
        AssumeNegative(*order, out);
      }
      return;
    case ExprKind::kEq:
    case ExprKind::kNe:
      if (holds == IsKind(condition, ExprKind::kEq) && condition->args[0]->dtype == DType::kInt64) {
        Affine a = Decomposed(condition->args[0]);
        AddScaled(a, Decomposed(condition->args[1]), -1);
        Affine negative = Scaled(a, -1);
        a.constant = WrappingAdd(a.constant, -1);
        negative.constant = WrappingAdd(negative.constant, -1);
        AssumeNegative(a, out);
        AssumeNegative(negative, out);
      }
      return;
    default: return;
  }
}

void Simplifier::AssumeNegative(const Affine& a, Narrowing& out) const {
  if (a.terms.size() != 1 || !IsKind(a.terms[0].first, ExprKind::kVar) || !IsSmall(a.constant)) return;
  const ExprNode* var = a.terms[0].first.get();
  std::optional<Interval> range = RangeOf(var);
  for (const auto& [narrowed_var, narrowed] : out)
    if (narrowed_var == var) range = narrowed;
  const int64_t c = a.terms[0].second;
  if (!range || !IsSmall(c)) return;
  if (c > 0) {
    range->max = std::min(range->max, FloorDivInt(-a.constant - 1, c));
  } else {
    range->min = std::max(range->min, FloorDivInt(a.constant, -c) + 1);
  }
  if (range->min <= range->max) out.emplace_back(var, *range);
}

}  // namespace diapason::simplify
