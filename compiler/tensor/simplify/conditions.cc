#include "compiler/tensor/simplify/conditions.h"

#include <utility>

namespace diapason::simplify {
namespace {

// Conjunctions longer than this are not compared term by term.
constexpr size_t kMaxPairwise = 32;

// floordiv(X, d) < c  ->  X < c * d
bool UnwrapQuotient(Affine& a) {
  if (a.terms.size() != 1 || !IsFloorDiv(a.terms[0].first)) return false;
  const Expr term = a.terms[0].first;
  const int64_t coefficient = a.terms[0].second;
  const int64_t d = DivisorOf(term);
  const int64_t bound = coefficient == 1 ? a.constant : WrappingAdd(a.constant, 1);
  const std::optional<int64_t> scaled = SafeMul(bound, d);
  if ((coefficient != 1 && coefficient != -1) || !scaled) return false;
  Affine unwrapped = ConstantOf(coefficient == 1 ? *scaled : *scaled - 1);
  AddScaled(unwrapped, Decomposed(term->args[0]), coefficient);
  a = std::move(unwrapped);
  return true;
}

}  // namespace

Expr CanonicalConditions::LessThanZero(Affine a) {
  while (AllSmall(a)) {
    if (const std::optional<Interval> bounds = bounds_.Of(a)) {
      if (bounds->max < 0) return Bool(true);
      if (bounds->min >= 0) return Bool(false);
    }
    if (a.terms.empty()) return Bool(a.constant < 0);
    if (!DivideOrder(a) && !UnwrapQuotient(a)) break;
  }
  const auto [left, right] = SidesOf(a);
  return interner_.Node(Lt(interner_.Sum(left), interner_.Sum(right)));
}

bool CanonicalConditions::DivideOrder(Affine& a) {
  Affine multiple, rest;
  for (int64_t factor : FactorsOf(a, 0)) {
    if (!sums_.SplitByFactor(a, factor, &multiple, &rest)) continue;
    a = multiple;
    return true;
  }
  return false;
}

Expr CanonicalConditions::EqualsZero(Affine a) {
  if (a.terms.empty()) return Bool(a.constant == 0);
  const std::optional<Interval> bounds = bounds_.Of(a);
  if (bounds && (bounds->min > 0 || bounds->max < 0)) return Bool(false);
  Affine multiple, rest;
  for (int64_t factor : AllSmall(a) ? FactorsOf(a, 0) : std::vector<int64_t>()) {
    if (!sums_.SplitByFactor(a, factor, &multiple, &rest)) continue;
    const std::optional<Interval> rest_bounds = bounds_.Of(rest);
    if (rest_bounds && rest_bounds->min > 0) return Bool(false);
    if (rest.terms.empty()) return EqualsZero(multiple);
  }
  const auto [left, right] = SidesOf(a);
  return interner_.Node(Eq(interner_.Sum(left), interner_.Sum(right)));
}

void CanonicalConditions::AddPart(const Expr& part, ExprKind kind, std::vector<Expr>& parts) {
  if (IsKind(part, kind)) {
    AddPart(part->args[0], kind, parts);
    AddPart(part->args[1], kind, parts);
    return;
  }
  const bool is_and = kind == ExprKind::kAnd;
  if (IsInt(part, is_and ? 1 : 0)) return;
  if (IsInt(part, is_and ? 0 : 1) || (parts.size() == 1 && IsInt(parts[0], is_and ? 0 : 1))) {
    parts = {Bool(!is_and)};
    return;
  }
  if (parts.size() > kMaxPairwise) {
    parts.push_back(part);
    return;
  }
  const std::optional<Affine> order = AsLessThanZero(part);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (Equal(parts[i], part)) return;
    if (Equal(parts[i], Not(part))) {
      parts = {Bool(!is_and)};
      return;
    }
    const std::optional<Affine> other = order ? AsLessThanZero(parts[i]) : std::nullopt;
    if (!other) continue;
    Affine difference = *order;
    AddScaled(difference, *other, -1);
    if (difference.terms.empty()) {  // part: other + c < 0
      const bool part_is_stronger = difference.constant >= 0;
      if (part_is_stronger == is_and) parts[i] = part;
      return;
    }
    Affine sum = *order;
    AddScaled(sum, *other, 1);
    if (sum.terms.empty() && (is_and ? sum.constant > -2 : sum.constant < 0)) {
      parts = {Bool(!is_and)};
      return;
    }
  }
  parts.push_back(part);
}

Expr CanonicalConditions::Conjunction(const Expr& a, const Expr& b) {
  std::vector<Expr> parts;
  AddPart(a, ExprKind::kAnd, parts);
  AddPart(b, ExprKind::kAnd, parts);
  return Joined(parts, ExprKind::kAnd);
}

Expr CanonicalConditions::Joined(const std::vector<Expr>& parts, ExprKind kind) {
  const bool is_and = kind == ExprKind::kAnd;
  Expr result = Bool(is_and);
  for (const Expr& part : parts) result = interner_.Node(is_and ? And(result, part) : Or(result, part));
  return result;
}

}  // namespace diapason::simplify
