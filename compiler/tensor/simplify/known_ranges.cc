#include "compiler/tensor/simplify/known_ranges.h"

#include <algorithm>

namespace diapason::simplify {
namespace {

constexpr int kMaxNarrowing = 8;

}  // namespace

std::optional<Interval> KnownRanges::Of(const ExprNode* var) const {
  for (auto it = narrowed_.rbegin(); it != narrowed_.rend(); ++it)
    if (it->first == var) return it->second;
  auto it = ranges_.find(var);
  if (it == ranges_.end()) return std::nullopt;
  return Checked(it->second);
}

std::optional<KnownRanges> KnownRanges::Assuming(const Expr& condition, bool holds) const {
  Narrowing narrowed;
  if (depth_ < kMaxNarrowing) Assume(condition, holds, narrowed);
  if (narrowed.empty()) return std::nullopt;
  KnownRanges assuming = *this;
  assuming.narrowed_.insert(assuming.narrowed_.end(), narrowed.begin(), narrowed.end());
  ++assuming.depth_;
  return assuming;
}

void KnownRanges::Assume(const Expr& condition, bool holds, Narrowing& out) const {
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

void KnownRanges::AssumeNegative(const Affine& a, Narrowing& out) const {
  if (a.terms.size() != 1 || !IsKind(a.terms[0].first, ExprKind::kVar) || !IsSmall(a.constant)) return;
  const ExprNode* var = a.terms[0].first.get();
  std::optional<Interval> range = Of(var);
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
