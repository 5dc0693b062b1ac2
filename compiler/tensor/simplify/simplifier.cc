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

std::optional<Interval> Simplifier::RangeOf(const ExprNode* var) const {
  for (auto it = narrowed_.rbegin(); it != narrowed_.rend(); ++it)
    if (it->first == var) return it->second;
  auto it = ranges_.find(var);
  if (it == ranges_.end()) return std::nullopt;
  return Checked(it->second);
}

Expr Simplifier::RunLeaf(const Expr& e) const {
  if (!IsKind(e, ExprKind::kVar)) return e;
  const std::optional<Interval> range = RangeOf(e.get());
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
      return Sum(Recombined(CollectNode(e)));
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
  return Node(Rebuild(e, std::move(args)));
}

}  // namespace diapason::simplify
