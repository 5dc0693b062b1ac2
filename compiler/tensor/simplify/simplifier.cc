#include "compiler/tensor/simplify/simplifier.h"

namespace diapason::simplify {

Expr Simplifier::Run(const Expr& e) {
  if (e->args.empty()) return RunLeaf(e);
  const bool shared = e.use_count() > 1;
  if (shared) {
    if (auto it = done_.find(e.get()); it != done_.end()) return it->second.result;
  }
  Expr result = Compute(e);
  if (shared) done_.emplace(e.get(), Done{e, result});
  return result;
}

Expr Simplifier::RunLeaf(const Expr& e) const {
  if (!IsKind(e, ExprKind::kVar)) return e;
  const std::optional<Interval> range = ranges_.Of(e.get());
  return range && range->min == range->max ? IntImm(range->min) : e;
}

Expr Simplifier::Compute(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul:
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod:
    case ExprKind::kMin:
    case ExprKind::kMax:
      if (e->dtype != DType::kInt64) break;
      return interner_.Sum(sums_.Recombined(CollectNode(e)));
    case ExprKind::kLt:
    case ExprKind::kLe:
    case ExprKind::kEq:
    case ExprKind::kNe:
      if (e->args[0]->dtype != DType::kInt64) break;
      return Compare(e);
    case ExprKind::kAnd:
    case ExprKind::kOr: return Junction(e);
    case ExprKind::kNot: return Negation(e);
    case ExprKind::kSelect: return Choice(e);
    default: break;
  }
  std::vector<Expr> args;
  args.reserve(e->args.size());
  for (const Expr& arg : e->args) args.push_back(Run(arg));
  return interner_.Node(Rebuild(e, std::move(args)));
}

Affine Simplifier::Collect(const Expr& e) {
  if (e->args.empty() || e.use_count() > 1) return Decomposed(Run(e));
  return CollectNode(e);
}

Affine Simplifier::CollectNode(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kAdd:
    case ExprKind::kSub: {
      Affine sum = Collect(e->args[0]);
      AddScaled(sum, Collect(e->args[1]), IsKind(e, ExprKind::kSub) ? -1 : 1);
      return sum;
    }
    case ExprKind::kMul: return sums_.Times(Collect(e->args[0]), Collect(e->args[1]));
    case ExprKind::kFloorDiv: return sums_.Quotient(Canonical(e->args[0]), DivisorOf(e));
    case ExprKind::kFloorMod: return sums_.Remainder(Canonical(e->args[0]), DivisorOf(e));
    case ExprKind::kMin:
    case ExprKind::kMax: {
      const Affine a = Canonical(e->args[0]);
      const Affine b = Canonical(e->args[1]);
      return sums_.Extremum(a, b, IsKind(e, ExprKind::kMin));
    }
    default: return Decomposed(Compute(e));
  }
}

Expr Simplifier::Compare(const Expr& e) {
  Affine difference = Collect(e->args[0]);
  AddScaled(difference, Collect(e->args[1]), -1);
  difference = sums_.Recombined(std::move(difference));
  switch (e->kind) {
    case ExprKind::kLe: difference.constant = WrappingAdd(difference.constant, -1); [[fallthrough]];
    case ExprKind::kLt: return conditions_.LessThanZero(std::move(difference));
    case ExprKind::kEq: return conditions_.EqualsZero(std::move(difference));
    default: return interner_.Node(Not(conditions_.EqualsZero(std::move(difference))));
  }
}

Expr Simplifier::Negation(const Expr& e) {
  const Expr negated = Not(Run(e->args[0]));
  const std::optional<Affine> order = AsLessThanZero(negated);
  return order ? conditions_.LessThanZero(*order) : interner_.Node(negated);  // into the form "a < b"
}

void Simplifier::FlattenJunction(const Expr& e, ExprKind kind, std::vector<Expr>& parts) {
  if (IsKind(e, kind)) {
    FlattenJunction(e->args[0], kind, parts);
    FlattenJunction(e->args[1], kind, parts);
    return;
  }
  conditions_.AddPart(Run(e), kind, parts);
}

Expr Simplifier::Junction(const Expr& e) {
  std::vector<Expr> parts;
  FlattenJunction(e, e->kind, parts);
  return conditions_.Joined(parts, e->kind);
}

Expr Simplifier::Choice(const Expr& e) {
  const Expr condition = Run(e->args[0]);
  if (IsKind(condition, ExprKind::kIntImm)) return Run(e->args[condition->value != 0 ? 1 : 2]);
  const Expr then_value = RunAssuming(condition, true, e->args[1]);
  const Expr else_value = RunAssuming(condition, false, e->args[2]);
  if (IsInt(then_value, 1) && IsInt(else_value, 0) && e->dtype == DType::kBool) return condition;
  if (IsInt(then_value, 0) && IsInt(else_value, 1) && e->dtype == DType::kBool) return interner_.Node(Not(condition));
  if (IsKind(then_value, ExprKind::kSelect) && Equal(then_value->args[2], else_value))
    return interner_.Node(
        Select(conditions_.Conjunction(condition, then_value->args[0]), then_value->args[1], else_value));
  return interner_.Node(Select(condition, then_value, else_value));
}

Expr Simplifier::RunAssuming(const Expr& condition, bool holds, const Expr& e) {
  if (e->args.empty() && !IsKind(e, ExprKind::kVar)) return e;
  std::optional<KnownRanges> ranges = ranges_.Assuming(condition, holds);
  return ranges ? Simplifier(*std::move(ranges), interner_).Run(e) : Run(e);
}

}  // namespace diapason::simplify
