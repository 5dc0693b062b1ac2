#include "compiler/tensor/simplify/affine.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace diapason {
namespace simplify {
namespace {

// Sums are generic in how terms are told apart: by address inside the simplifier, by structure elsewhere.
struct SameAddress {
  bool operator()(const Expr& a, const Expr& b) const { return a == b; }
};
struct SameStructure {
  bool operator()(const Expr& a, const Expr& b) const { return Equal(a, b); }
};

template <typename Same>
int Find(const Affine& sum, const Expr& term) {
  for (size_t i = 0; i < sum.terms.size(); ++i)
    if (Same()(sum.terms[i].first, term)) return static_cast<int>(i);
  return -1;
}

template <typename Same>
void Add(Affine& sum, const Expr& term, int64_t coefficient) {
  if (coefficient == 0) return;
  const int i = Find<Same>(sum, term);
  if (i < 0) {
    sum.terms.emplace_back(term, coefficient);
    return;
  }
  sum.terms[i].second = WrappingAdd(sum.terms[i].second, coefficient);
  if (sum.terms[i].second == 0) sum.terms.erase(sum.terms.begin() + i);
}

template <typename Same>
void Collect(const Expr& e, int64_t factor, Affine& sum) {
  switch (e->kind) {
    case ExprKind::kIntImm: sum.constant = WrappingAdd(sum.constant, WrappingMul(e->value, factor)); return;
    case ExprKind::kAdd:
    case ExprKind::kSub:
      Collect<Same>(e->args[0], factor, sum);
      Collect<Same>(e->args[1], IsKind(e, ExprKind::kSub) ? WrappingMul(factor, -1) : factor, sum);
      return;
    case ExprKind::kMul:
      if (IsKind(e->args[1], ExprKind::kIntImm)) {
        Collect<Same>(e->args[0], WrappingMul(factor, e->args[1]->value), sum);
        return;
      }
      break;
    default: break;
  }
  Add<Same>(sum, e, factor);
}

}  // namespace

int FindTerm(const Affine& sum, const Expr& term) { return Find<SameAddress>(sum, term); }

void AddTerm(Affine& sum, const Expr& term, int64_t coefficient) { Add<SameAddress>(sum, term, coefficient); }

std::optional<int64_t> SafeMul(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product) || product > kLimit || product < -kLimit) return std::nullopt;
  return product;
}

std::optional<Interval> Checked(Interval interval) {
  if (!IsSmall(interval.min) || !IsSmall(interval.max)) return std::nullopt;
  return interval;
}

std::optional<Interval> Product(Interval a, Interval b) {
  Interval out{kLimit, -kLimit};
  for (int64_t x : {a.min, a.max}) {
    for (int64_t y : {b.min, b.max}) {
      const std::optional<int64_t> corner = SafeMul(x, y);
      if (!corner) return std::nullopt;
      out.min = std::min(out.min, *corner);
      out.max = std::max(out.max, *corner);
    }
  }
  return out;
}

void AddScaled(Affine& sum, const Affine& other, int64_t factor) {
  sum.constant = WrappingAdd(sum.constant, WrappingMul(other.constant, factor));
  for (const auto& [term, coefficient] : other.terms) AddTerm(sum, term, WrappingMul(coefficient, factor));
}

Affine Scaled(const Affine& a, int64_t factor) {
  Affine out;
  AddScaled(out, a, factor);
  return out;
}

Affine Decomposed(const Expr& e) {
  Affine sum;
  Collect<SameAddress>(e, 1, sum);
  return sum;
}

bool AllSmall(const Affine& a) {
  return IsSmall(a.constant) &&
         std::all_of(a.terms.begin(), a.terms.end(), [](const auto& term) { return IsSmall(term.second); });
}

bool ContainsTerms(const Affine& sum, const Affine& part, int64_t factor) {
  for (const auto& [term, coefficient] : part.terms) {
    const int i = FindTerm(sum, term);
    if (i < 0 || sum.terms[i].second != WrappingMul(coefficient, factor)) return false;
  }
  return !part.terms.empty();
}

std::vector<int64_t> FactorsOf(const Affine& a, int64_t modulus) {
  std::vector<int64_t> factors;
  for (const auto& [term, coefficient] : a.terms) factors.push_back(std::gcd(coefficient, modulus));
  const size_t count = factors.size();
  for (size_t i = 0; i < count; ++i)
    for (size_t j = 0; j < i; ++j) factors.push_back(std::gcd(factors[i], factors[j]));
  std::sort(factors.begin(), factors.end(), std::greater<int64_t>());
  factors.erase(std::unique(factors.begin(), factors.end()), factors.end());
  while (!factors.empty() && factors.back() <= 1) factors.pop_back();
  return factors;
}

std::pair<Affine, Affine> SidesOf(const Affine& a) {
  Affine left, right;
  for (const auto& [term, coefficient] : a.terms) {
    if (coefficient > 0) {
      left.terms.emplace_back(term, coefficient);
    } else {
      right.terms.emplace_back(term, WrappingMul(coefficient, -1));
    }
  }
  if (left.terms.empty()) {
    left.constant = a.constant;  // c < x
  } else {
    right.constant = WrappingMul(a.constant, -1);
  }
  return {left, right};
}

std::optional<Affine> AsLessThanZero(const Expr& condition) {
  const bool lt = IsKind(condition, ExprKind::kLt);
  if ((!lt && !IsKind(condition, ExprKind::kLe)) || condition->args[0]->dtype != DType::kInt64) return std::nullopt;
  Affine a = Decomposed(condition->args[0]);
  AddScaled(a, Decomposed(condition->args[1]), -1);
  if (!lt) a.constant = WrappingAdd(a.constant, -1);
  return a;
}

}  // namespace simplify

int64_t Affine::CoefficientOf(const ExprNode* var) const {
  for (const auto& [term, coefficient] : terms)
    if (term.get() == var) return coefficient;
  return 0;
}

Affine ToAffine(const Expr& e) {
  Affine sum;
  simplify::Collect<simplify::SameStructure>(e, 1, sum);
  return sum;
}

Expr FromAffine(const Affine& a) {
  Expr sum;
  for (const auto& [term, coefficient] : a.terms) {
    if (coefficient <= 0) continue;
    Expr scaled = Mul(term, IntImm(coefficient));
    sum = sum == nullptr ? std::move(scaled) : Add(std::move(sum), std::move(scaled));
  }
  int64_t constant = a.constant;
  for (const auto& [term, coefficient] : a.terms) {
    if (coefficient > 0) continue;
    if (sum == nullptr) sum = IntImm(std::exchange(constant, 0));
    sum = Sub(std::move(sum), Mul(term, IntImm(simplify::WrappingMul(coefficient, -1))));
  }
  return sum == nullptr ? IntImm(constant) : Add(std::move(sum), IntImm(constant));
}

}  // namespace diapason
