// Comparisons, and conjunctions and disjunctions of them.
#include "compiler/tensor/simplify/simplifier.h"

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

Expr Simplifier::Compare(const Expr& e) {
  Affine difference = Collect(e->args[0]);
  AddScaled(difference, Collect(e->args[1]), -1);
  difference = Recombined(std::move(difference));
  switch (e->kind) {
    case ExprKind::kLe: difference.constant = WrappingAdd(difference.constant, -1); [[fallthrough]];
    case ExprKind::kLt: return LessThanZero(std::move(difference));
    case ExprKind::kEq: return EqualsZero(std::move(difference));
    default: return Node(Not(EqualsZero(std::move(difference))));
  }
}

Expr Simplifier::LessThanZero(Affine a) {
  while (AllSmall(a)) {
    if (const std::optional<Interval> bounds = BoundsOf(a)) {
      if (bounds->max < 0) return Bool(true);
      if (bounds->min >= 0) return Bool(false);
    }
    if (a.terms.empty()) return Bool(a.constant < 0);
    if (!DivideOrder(a) && !UnwrapQuotient(a)) break;
  }
  const auto [left, right] = SidesOf(a);
  return Node(Lt(Sum(left), Sum(right)));
}

bool Simplifier::DivideOrder(Affine& a) {
  Affine multiple, rest;
  for (int64_t factor : FactorsOf(a, 0)) {
    if (!SplitByFactor(a, factor, &multiple, &rest)) continue;
    a = multiple;
    return true;
  }
  return false;
}

Expr Simplifier::EqualsZero(Affine a) {
  if (a.terms.empty()) return Bool(a.constant == 0);
  const std::optional<Interval> bounds = BoundsOf(a);
  if (bounds && (bounds->min > 0 || bounds->max < 0)) return Bool(false);
  Affine multiple, rest;
  for (int64_t factor : AllSmall(a) ? FactorsOf(a, 0) : std::vector<int64_t>()) {
    if (!SplitByFactor(a, factor, &multiple, &rest)) continue;
    const std::optional<Interval> rest_bounds = BoundsOf(rest);
    if (rest_bounds && rest_bounds->min > 0) return Bool(false);
    if (rest.terms.empty()) return EqualsZero(multiple);
  }
  const auto [left, right] = SidesOf(a);
  return Node(Eq(Sum(left), Sum(right)));
}

Expr Simplifier::Negation(const Expr& e) {
  const Expr negated = Not(Run(e->args[0]));
  const std::optional<Affine> order = AsLessThanZero(negated);
  return order ? LessThanZero(*order) : Node(negated);  // into the form "a < b"
}

void Simplifier::FlattenJunction(const Expr& e, ExprKind kind, std::vector<Expr>& parts) {
  if (IsKind(e, kind)) {
    FlattenJunction(e->args[0], kind, parts);
    FlattenJunction(e->args[1], kind, parts);
    return;
  }
  AddPart(Run(e), kind, parts);
}

void Simplifier::AddPart(const Expr& part, ExprKind kind, std::vector<Expr>& parts) {
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

Expr Simplifier::Junction(const Expr& e) {
  std::vector<Expr> parts;
  FlattenJunction(e, e->kind, parts);
  return Joined(parts, IsKind(e, ExprKind::kAnd));
}

Expr Simplifier::Conjunction(const Expr& a, const Expr& b) {
  std::vector<Expr> parts;
  AddPart(a, ExprKind::kAnd, parts);
  AddPart(b, ExprKind::kAnd, parts);
  return Joined(parts, true);
}

Expr Simplifier::Joined(const std::vector<Expr>& parts, bool is_and) {
  Expr result = Bool(is_and);
  for (const Expr& part : parts) result = Node(is_and ? And(result, part) : Or(result, part));
  return result;
}

}  // namespace diapason::simplify
