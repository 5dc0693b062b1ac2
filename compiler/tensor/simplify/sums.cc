#include "compiler/tensor/simplify/sums.h"

#include <algorithm>
#include <utility>

namespace diapason::simplify {
namespace {

// Replaces c * floormod(X, m) by c * X where d divides c * m: the same number modulo d.
Affine WithoutInnerRemainders(Affine a, int64_t d) {
  for (size_t i = 0; i < a.terms.size();) {
    const Expr term = a.terms[i].first;
    const int64_t coefficient = a.terms[i].second;
    const std::optional<int64_t> period = IsFloorMod(term) ? SafeMul(coefficient, DivisorOf(term)) : std::nullopt;
    if (!period || *period % d != 0) {
      ++i;
      continue;
    }
    a.terms.erase(a.terms.begin() + static_cast<int64_t>(i));
    AddScaled(a, Decomposed(term->args[0]), coefficient);
    i = 0;
  }
  return a;
}

// Moves a multiple of d out of the constant, so that the smallest value of r lies in [0, d) if bounds are known (then
// plain division serves in generated code), or the constant does. Returns how many d were taken out.
int64_t NormaliseConstant(Affine& r, int64_t d, const std::optional<Interval>& bounds) {
  const int64_t shift = FloorDivInt(bounds ? bounds->min : r.constant, d);
  r.constant = WrappingAdd(r.constant, WrappingMul(shift, -d));
  return shift;
}

}  // namespace

Affine CanonicalSums::Times(Affine a, Affine b) {
  if (b.terms.empty()) return Scaled(a, b.constant);
  if (a.terms.empty()) return Scaled(b, a.constant);
  return TermOf(interner_.Node(Mul(interner_.Sum(Recombined(std::move(a))), interner_.Sum(Recombined(std::move(b))))));
}

Affine CanonicalSums::Extremum(const Affine& a, const Affine& b, bool is_min) {
  Affine difference = a;
  AddScaled(difference, b, -1);
  if (const std::optional<Interval> bounds = bounds_.Of(Recombined(difference))) {
    if (bounds->max <= 0) return is_min ? a : b;
    if (bounds->min >= 0) return is_min ? b : a;
  }
  return Decomposed(
      interner_.Node(is_min ? Min(interner_.Sum(a), interner_.Sum(b)) : Max(interner_.Sum(a), interner_.Sum(b))));
}

Affine CanonicalSums::Recombined(Affine sum) {
  auto composite = [](const auto& term) { return IsFloorDiv(term.first) || IsFloorMod(term.first); };
  for (int round = 0; round < 64; ++round) {
    if (sum.terms.size() < 2 || std::none_of(sum.terms.begin(), sum.terms.end(), composite)) break;
    if (!JoinQuotientAndRemainder(sum) && !MakeRemainder(sum)) break;
  }
  return sum;
}

bool CanonicalSums::JoinQuotientAndRemainder(Affine& sum) {
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    const Expr term = sum.terms[i].first;
    const int64_t c = sum.terms[i].second;
    if (!IsFloorMod(term)) continue;
    const std::optional<int64_t> cd = SafeMul(c, DivisorOf(term));
    if (!cd) continue;
    const Affine number = Decomposed(term->args[0]);
    const Affine quotient = Quotient(number, DivisorOf(term));
    if (!ContainsTerms(sum, quotient, *cd)) continue;
    AddScaled(sum, quotient, -*cd);
    AddTerm(sum, term, -c);
    AddScaled(sum, number, c);
    return true;
  }
  return false;
}

bool CanonicalSums::MakeRemainder(Affine& sum) {
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    const Expr term = sum.terms[i].first;
    const int64_t coefficient = sum.terms[i].second;
    if (!IsFloorDiv(term) || !IsSmall(coefficient) || coefficient % DivisorOf(term) != 0) continue;
    const int64_t c = -coefficient / DivisorOf(term);
    const Affine number = Decomposed(term->args[0]);
    if (!ContainsTerms(sum, number, c)) continue;
    AddScaled(sum, number, -c);
    AddTerm(sum, term, -coefficient);
    AddScaled(sum, Remainder(number, DivisorOf(term)), c);
    return true;
  }
  return false;
}

bool CanonicalSums::SplitByFactor(const Affine& r, int64_t factor, Affine* multiple, Affine* rest) {
  *multiple = *rest = Affine{};
  for (const auto& [term, coefficient] : r.terms) {
    if (coefficient % factor == 0) {
      multiple->terms.emplace_back(term, coefficient / factor);
    } else {
      rest->terms.emplace_back(term, coefficient);
    }
  }
  rest->constant = r.constant;
  const std::optional<Interval> bounds = bounds_.Of(*rest);
  if (!bounds) return false;
  multiple->constant = NormaliseConstant(*rest, factor, bounds);
  return bounds->max - multiple->constant * factor < factor;
}

Affine CanonicalSums::Quotient(const Affine& a, int64_t d) {
  if (d == 1) return a;
  if (d > kLimit || !AllSmall(a)) return Decomposed(interner_.Node(FloorDiv(interner_.Sum(a), d)));
  Affine q, r;
  r.constant = a.constant;
  for (const auto& [term, coefficient] : a.terms) {
    AddTerm(q, term, coefficient / d);
    if (coefficient % d != 0) r.terms.emplace_back(term, coefficient % d);
  }
  const std::optional<Interval> bounds = bounds_.Of(r);
  const int64_t shift = NormaliseConstant(r, d, bounds);
  q.constant = WrappingAdd(q.constant, shift);
  if (r.terms.empty() || (bounds && bounds->max - shift * d < d)) return q;
  AddScaled(q, QuotientOfReduced(r, d), 1);
  return q;
}

Affine CanonicalSums::QuotientOfReduced(const Affine& r, int64_t d) {
  Affine multiple, rest;
  for (int64_t factor : FactorsOf(r, d))
    if (SplitByFactor(r, factor, &multiple, &rest)) return Quotient(multiple, d / factor);
  if (r.terms.size() == 1 && r.terms[0].second == 1) {
    if (std::optional<Affine> nested = QuotientOfAtom(r.terms[0].first, r.constant, d)) return *std::move(nested);
  }
  return Decomposed(interner_.Node(FloorDiv(interner_.Sum(r), d)));
}

std::optional<Affine> CanonicalSums::QuotientOfAtom(const Expr& term, int64_t constant, int64_t d) {
  if (IsFloorDiv(term)) {
    const std::optional<int64_t> divisor = SafeMul(DivisorOf(term), d);
    const std::optional<int64_t> offset = SafeMul(DivisorOf(term), constant);
    if (!divisor || !offset) return std::nullopt;
    Affine number = Decomposed(term->args[0]);
    number.constant = WrappingAdd(number.constant, *offset);
    return Quotient(number, *divisor);
  }
  if (IsFloorMod(term) && constant == 0 && DivisorOf(term) % d == 0)
    return Remainder(Quotient(Decomposed(term->args[0]), d), DivisorOf(term) / d);
  return std::nullopt;
}

bool CanonicalSums::Reduce(const Affine& a, int64_t d, Affine* r) {
  *r = Affine{};
  r->constant = a.constant;
  for (const auto& [term, coefficient] : a.terms)
    if (coefficient % d != 0) r->terms.emplace_back(term, coefficient % d);
  const std::optional<Interval> bounds = bounds_.Of(*r);
  const int64_t shift = NormaliseConstant(*r, d, bounds);
  return r->terms.empty() || (bounds && bounds->max - shift * d < d);
}

Affine CanonicalSums::Remainder(const Affine& a, int64_t d) {
  if (d == 1) return ConstantOf(0);
  if (d > kLimit || !AllSmall(a)) return Decomposed(interner_.Node(FloorMod(interner_.Sum(a), d)));
  Affine r;
  if (Reduce(a, d, &r)) return r;
  if (Reduce(WithoutInnerRemainders(r, d), d, &r)) return r;
  Affine multiple, rest;
  for (int64_t factor : FactorsOf(r, d)) {
    if (!SplitByFactor(r, factor, &multiple, &rest)) continue;
    AddScaled(rest, Remainder(multiple, d / factor), factor);
    return rest;
  }
  return Decomposed(interner_.Node(FloorMod(interner_.Sum(r), d)));
}

}  // namespace diapason::simplify
