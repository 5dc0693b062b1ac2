// The simplifier works on affine forms: a sum is collected into constant + coefficients * terms, where the terms that are
// no variables ("atoms") are simplified before. A canonical form is taken apart where its parts are needed, never
// simplified again, so the cost of a tree is polynomial in its size.
#include "compiler/tensor/simplify.h"

#include <algorithm>
#include <numeric>

#include "compiler/tensor/check.h"

namespace diapason {
namespace {

using Ranges = std::unordered_map<const ExprNode*, Interval>;
using Narrowing = std::vector<std::pair<const ExprNode*, Interval>>;

// Bounds beyond this are treated as unknown, so that sums of a few of them stay within int64.
constexpr int64_t kLimit = int64_t{1} << 60;
// A select narrows ranges for its branches only this deep: every level simplifies what it shares with others anew.
constexpr int kMaxNarrowing = 8;
// Conjunctions longer than this are not compared term by term.
constexpr size_t kMaxPairwise = 32;

int64_t WrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t WrappingMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
// a * b, if it is small enough to go on with.
std::optional<int64_t> SafeMul(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product) || product > kLimit || product < -kLimit) return std::nullopt;
  return product;
}
bool IsSmall(int64_t value) { return value <= kLimit && value >= -kLimit; }

int64_t FloorDivInt(int64_t a, int64_t b) { return a / b - (a % b < 0); }
int64_t FloorModInt(int64_t a, int64_t b) { return a - FloorDivInt(a, b) * b; }

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

bool IsKind(const Expr& e, ExprKind kind) { return e->kind == kind; }
bool IsFloorDiv(const Expr& e) { return IsKind(e, ExprKind::kFloorDiv); }
bool IsFloorMod(const Expr& e) { return IsKind(e, ExprKind::kFloorMod); }
int64_t DivisorOf(const Expr& e) { return e->args[1]->value; }

Expr Bool(bool value) { return IntImm(value, DType::kBool); }

// Sums are generic in how terms are told apart: by address inside the simplifier, where equal terms are one node (see
// Interner), by structure elsewhere.
struct SameAddress {
  bool operator()(const Expr& a, const Expr& b) const { return a == b; }
};
struct SameStructure {
  bool operator()(const Expr& a, const Expr& b) const { return Equal(a, b); }
};

template <typename Same>
int FindTerm(const Affine& sum, const Expr& term) {
  for (size_t i = 0; i < sum.terms.size(); ++i)
    if (Same()(sum.terms[i].first, term)) return static_cast<int>(i);
  return -1;
}

template <typename Same = SameAddress>
void AddTerm(Affine& sum, const Expr& term, int64_t coefficient) {
  if (coefficient == 0) return;
  const int i = FindTerm<Same>(sum, term);
  if (i < 0) {
    sum.terms.emplace_back(term, coefficient);
    return;
  }
  sum.terms[i].second = WrappingAdd(sum.terms[i].second, coefficient);
  if (sum.terms[i].second == 0) sum.terms.erase(sum.terms.begin() + i);
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

Affine TermOf(const Expr& term) { return Affine{0, {{term, 1}}}; }
Affine ConstantOf(int64_t value) { return Affine{value, {}}; }

template <typename Same>
void CollectPlain(const Expr& e, int64_t factor, Affine& sum) {
  switch (e->kind) {
    case ExprKind::kIntImm: sum.constant = WrappingAdd(sum.constant, WrappingMul(e->value, factor)); return;
    case ExprKind::kAdd:
    case ExprKind::kSub:
      CollectPlain<Same>(e->args[0], factor, sum);
      CollectPlain<Same>(e->args[1], IsKind(e, ExprKind::kSub) ? WrappingMul(factor, -1) : factor, sum);
      return;
    case ExprKind::kMul:
      if (IsKind(e->args[1], ExprKind::kIntImm)) {
        CollectPlain<Same>(e->args[0], WrappingMul(factor, e->args[1]->value), sum);
        return;
      }
      break;
    default: break;
  }
  AddTerm<Same>(sum, e, factor);
}

// The sum that a canonical expression is.
Affine Decomposed(const Expr& e) {
  Affine sum;
  CollectPlain<SameAddress>(e, 1, sum);
  return sum;
}

bool AllSmall(const Affine& a) {
  return IsSmall(a.constant) &&
         std::all_of(a.terms.begin(), a.terms.end(), [](const auto& term) { return IsSmall(term.second); });
}

// True if `sum` contains factor * (the terms of `part`), coefficient by coefficient.
bool ContainsTerms(const Affine& sum, const Affine& part, int64_t factor) {
  for (const auto& [term, coefficient] : part.terms) {
    const int i = FindTerm<SameAddress>(sum, term);
    if (i < 0 || sum.terms[i].second != WrappingMul(coefficient, factor)) return false;
  }
  return !part.terms.empty();
}

// Numbers above 1 that divide some of the coefficients (and the modulus, unless it is 0), largest first.
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

// Left and right sides of "a <op> 0" with positive coefficients.
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

// Keeps one node for all equal expressions of a run, so that comparing addresses is comparing structure: without it,
// comparing two deep expressions with shared parts costs exponentially in their depth.
class Interner {
 public:
  // The node that stands for all nodes like `e`. REQUIRES: e's arguments are interned or literals.
  Expr Node(const Expr& e) {
    if (e->args.empty()) return e;
    for (const Expr& known : nodes_[HashOf(*e)])
      if (SameNode(*known, *e)) return known;
    nodes_[HashOf(*e)].push_back(e);
    return e;
  }

  // The expression of a sum; sums that differ in the order of terms are the same.
  Expr Sum(const Affine& a) {
    if (a.terms.empty()) return IntImm(a.constant);
    if (a.terms.size() == 1 && a.constant == 0 && a.terms[0].second == 1) return a.terms[0].first;
    std::vector<std::pair<Affine, Expr>>& bucket = sums_[HashOf(a)];
    for (const auto& [sum, e] : bucket)
      if (sum.constant == a.constant && sum.terms.size() == a.terms.size() && ContainsTerms(sum, a, 1)) return e;
    bucket.emplace_back(a, FromAffine(a));
    return bucket.back().second;
  }

 private:
  static uint64_t Mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
  }
  static uint64_t AddressOf(const Expr& e) { return reinterpret_cast<uintptr_t>(e.get()); }
  static bool IsLiteral(const Expr& e) {
    return IsKind(e, ExprKind::kIntImm) || IsKind(e, ExprKind::kFloatImm);
  }

  static uint64_t HashOf(const ExprNode& e) {
    uint64_t hash = Mix(static_cast<uint64_t>(e.kind), static_cast<uint64_t>(e.buffer));
    for (const Expr& arg : e.args) hash = Mix(hash, IsLiteral(arg) ? static_cast<uint64_t>(arg->value) : AddressOf(arg));
    return hash;
  }
  static uint64_t HashOf(const Affine& a) {
    uint64_t hash = static_cast<uint64_t>(a.constant);
    for (const auto& [term, coefficient] : a.terms) hash += Mix(AddressOf(term), static_cast<uint64_t>(coefficient));
    return hash;
  }

  static bool SameNode(const ExprNode& a, const ExprNode& b) {
    if (a.kind != b.kind || a.dtype != b.dtype || a.buffer != b.buffer || a.name != b.name) return false;
    return std::equal(a.args.begin(), a.args.end(), b.args.begin(), b.args.end(), [](const Expr& x, const Expr& y) {
      return x == y || (IsLiteral(x) && Equal(x, y));
    });
  }

  std::unordered_map<uint64_t, std::vector<Expr>> nodes_;
  std::unordered_map<uint64_t, std::vector<std::pair<Affine, Expr>>> sums_;
};

// The condition as "affine < 0", if it is an order of integers.
std::optional<Affine> AsLessThanZero(const Expr& condition) {
  const bool lt = IsKind(condition, ExprKind::kLt);
  if ((!lt && !IsKind(condition, ExprKind::kLe)) || condition->args[0]->dtype != DType::kInt64) return std::nullopt;
  Affine a = Decomposed(condition->args[0]);
  AddScaled(a, Decomposed(condition->args[1]), -1);
  if (!lt) a.constant = WrappingAdd(a.constant, -1);
  return a;
}

class Simplifier {
 public:
  Simplifier(const Ranges& ranges, Interner& interner) : ranges_(ranges), interner_(interner) {}

  Expr Run(const Expr& e) {
    if (e->args.empty()) return RunLeaf(e);
    const bool shared = e.use_count() > 1;
    if (shared) {
      if (auto it = done_.find(e.get()); it != done_.end()) return it->second.result;
    }
    Expr result = Compute(e);
    if (shared) done_.emplace(e.get(), Done{e, result});
    return result;
  }

  // Bounds of an expression in canonical form.
  std::optional<Interval> BoundsOf(const Expr& e) {
    if (IsKind(e, ExprKind::kIntImm)) return Checked({e->value, e->value});
    if (IsKind(e, ExprKind::kVar)) return RangeOf(e.get());
    if (auto it = bounds_.find(e.get()); it != bounds_.end()) return it->second.bounds;
    std::optional<Interval> bounds = ComputeBounds(e);
    bounds_.emplace(e.get(), KnownBounds{e, bounds});
    return bounds;
  }

  std::optional<Interval> BoundsOf(const Affine& a) {
    Interval sum{a.constant, a.constant};
    if (!IsSmall(a.constant)) return std::nullopt;
    for (const auto& [term, coefficient] : a.terms) {
      const std::optional<Interval> range = BoundsOf(term);
      if (!range) return std::nullopt;
      const std::optional<Interval> scaled = Product(*range, {coefficient, coefficient});
      if (!scaled) return std::nullopt;
      sum = {sum.min + scaled->min, sum.max + scaled->max};
      if (!Checked(sum)) return std::nullopt;
    }
    return sum;
  }

 private:
  struct Done {
    Expr keep;  // the key is its address
    Expr result;
  };
  struct KnownBounds {
    Expr keep;
    std::optional<Interval> bounds;
  };

  Simplifier(const Simplifier& outer, Narrowing narrowed)
      : ranges_(outer.ranges_), interner_(outer.interner_), narrowed_(std::move(narrowed)), depth_(outer.depth_ + 1) {}

  std::optional<Interval> RangeOf(const ExprNode* var) const {
    for (auto it = narrowed_.rbegin(); it != narrowed_.rend(); ++it)
      if (it->first == var) return it->second;
    auto it = ranges_.find(var);
    if (it == ranges_.end()) return std::nullopt;
    return Checked(it->second);
  }

  Expr RunLeaf(const Expr& e) const {
    if (!IsKind(e, ExprKind::kVar)) return e;
    const std::optional<Interval> range = RangeOf(e.get());
    return range && range->min == range->max ? IntImm(range->min) : e;
  }

  Expr Compute(const Expr& e) {
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

  Expr Node(const Expr& e) { return interner_.Node(e); }
  Expr Sum(const Affine& a) { return interner_.Sum(a); }

  // ---- Sums -------------------------------------------------------------------------------------------------------

  Affine Canonical(const Expr& e) { return Recombined(Collect(e)); }

  // The sum that e is, its atoms simplified.
  Affine Collect(const Expr& e) {
    if (e->args.empty() || e.use_count() > 1) return Decomposed(Run(e));
    return CollectNode(e);
  }

  Affine CollectNode(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kAdd:
      case ExprKind::kSub: {
        Affine sum = Collect(e->args[0]);
        AddScaled(sum, Collect(e->args[1]), IsKind(e, ExprKind::kSub) ? -1 : 1);
        return sum;
      }
      case ExprKind::kMul: return Times(Collect(e->args[0]), Collect(e->args[1]));
      case ExprKind::kFloorDiv: return Quotient(Canonical(e->args[0]), DivisorOf(e));
      case ExprKind::kFloorMod: return Remainder(Canonical(e->args[0]), DivisorOf(e));
      case ExprKind::kMin:
      case ExprKind::kMax: return Extremum(e);
      default: return Decomposed(Compute(e));
    }
  }

  Affine Times(Affine a, Affine b) {
    if (b.terms.empty()) return Scaled(a, b.constant);
    if (a.terms.empty()) return Scaled(b, a.constant);
    return TermOf(Node(Mul(Sum(Recombined(std::move(a))), Sum(Recombined(std::move(b))))));
  }

  Affine Extremum(const Expr& e) {
    const bool is_min = IsKind(e, ExprKind::kMin);
    Affine a = Canonical(e->args[0]);
    Affine b = Canonical(e->args[1]);
    Affine difference = a;
    AddScaled(difference, b, -1);
    if (const std::optional<Interval> bounds = BoundsOf(Recombined(difference))) {
      if (bounds->max <= 0) return is_min ? a : b;
      if (bounds->min >= 0) return is_min ? b : a;
    }
    return Decomposed(Node(is_min ? Min(Sum(a), Sum(b)) : Max(Sum(a), Sum(b))));
  }

  // Puts quotients and remainders of the same number together again, to a fixed point.
  Affine Recombined(Affine sum) {
    auto composite = [](const auto& term) { return IsFloorDiv(term.first) || IsFloorMod(term.first); };
    for (int round = 0; round < 64; ++round) {
      if (sum.terms.size() < 2 || std::none_of(sum.terms.begin(), sum.terms.end(), composite)) break;
      if (!JoinQuotientAndRemainder(sum) && !MakeRemainder(sum)) break;
    }
    return sum;
  }

  // c * d * floordiv(X, d) + c * floormod(X, d)  ->  c * X
  bool JoinQuotientAndRemainder(Affine& sum) {
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

  // c * X - c * d * floordiv(X, d)  ->  c * floormod(X, d)
  bool MakeRemainder(Affine& sum) {
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

  // ---- Quotients and remainders -----------------------------------------------------------------------------------

  // Moves a multiple of d out of the constant, so that the smallest value of r lies in [0, d) if bounds are known (then
  // plain division serves in generated code), or the constant does. Returns how many d were taken out.
  int64_t NormaliseConstant(Affine& r, int64_t d, const std::optional<Interval>& bounds) {
    const int64_t shift = FloorDivInt(bounds ? bounds->min : r.constant, d);
    r.constant = WrappingAdd(r.constant, WrappingMul(shift, -d));
    return shift;
  }

  // r = factor * (*multiple) + *rest with rest in [0, factor), where `factor` divides some coefficients.
  bool SplitByFactor(const Affine& r, int64_t factor, Affine* multiple, Affine* rest) {
    *multiple = *rest = Affine{};
    for (const auto& [term, coefficient] : r.terms) {
      if (coefficient % factor == 0) {
        multiple->terms.emplace_back(term, coefficient / factor);
      } else {
        rest->terms.emplace_back(term, coefficient);
      }
    }
    rest->constant = r.constant;
    const std::optional<Interval> bounds = BoundsOf(*rest);
    if (!bounds) return false;
    multiple->constant = NormaliseConstant(*rest, factor, bounds);
    return bounds->max - multiple->constant * factor < factor;
  }

  Affine Quotient(const Affine& a, int64_t d) {
    if (d == 1) return a;
    if (d > kLimit || !AllSmall(a)) return Decomposed(Node(FloorDiv(Sum(a), d)));
    Affine q, r;
    r.constant = a.constant;
    for (const auto& [term, coefficient] : a.terms) {
      AddTerm(q, term, coefficient / d);
      if (coefficient % d != 0) r.terms.emplace_back(term, coefficient % d);
    }
    const std::optional<Interval> bounds = BoundsOf(r);
    const int64_t shift = NormaliseConstant(r, d, bounds);
    q.constant = WrappingAdd(q.constant, shift);
    if (r.terms.empty() || (bounds && bounds->max - shift * d < d)) return q;
    AddScaled(q, QuotientOfReduced(r, d), 1);
    return q;
  }

  // Quotient where no coefficient reaches d.
  Affine QuotientOfReduced(const Affine& r, int64_t d) {
    Affine multiple, rest;
    for (int64_t factor : FactorsOf(r, d))
      if (SplitByFactor(r, factor, &multiple, &rest)) return Quotient(multiple, d / factor);
    if (r.terms.size() == 1 && r.terms[0].second == 1) {
      if (std::optional<Affine> nested = QuotientOfAtom(r.terms[0].first, r.constant, d)) return *std::move(nested);
    }
    return Decomposed(Node(FloorDiv(Sum(r), d)));
  }

  // floordiv(term + constant, d) for a term that is a quotient or remainder itself.
  std::optional<Affine> QuotientOfAtom(const Expr& term, int64_t constant, int64_t d) {
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

  // Coefficients reduced and multiples of d dropped. True if what is left lies in [0, d): the remainder itself.
  bool Reduce(const Affine& a, int64_t d, Affine* r) {
    *r = Affine{};
    r->constant = a.constant;
    for (const auto& [term, coefficient] : a.terms)
      if (coefficient % d != 0) r->terms.emplace_back(term, coefficient % d);
    const std::optional<Interval> bounds = BoundsOf(*r);
    const int64_t shift = NormaliseConstant(*r, d, bounds);
    return r->terms.empty() || (bounds && bounds->max - shift * d < d);
  }

  // Replaces c * floormod(X, m) by c * X where d divides c * m: the same number modulo d.
  static Affine WithoutInnerRemainders(Affine a, int64_t d) {
    for (size_t i = 0; i < a.terms.size();) {
      const Expr term = a.terms[i].first;
      const int64_t coefficient = a.terms[i].second;
      const std::optional<int64_t> period =
          IsFloorMod(term) ? SafeMul(coefficient, DivisorOf(term)) : std::nullopt;
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

  Affine Remainder(const Affine& a, int64_t d) {
    if (d == 1) return ConstantOf(0);
    if (d > kLimit || !AllSmall(a)) return Decomposed(Node(FloorMod(Sum(a), d)));
    Affine r;
    if (Reduce(a, d, &r)) return r;
    if (Reduce(WithoutInnerRemainders(r, d), d, &r)) return r;
    Affine multiple, rest;
    for (int64_t factor : FactorsOf(r, d)) {
      if (!SplitByFactor(r, factor, &multiple, &rest)) continue;
      AddScaled(rest, Remainder(multiple, d / factor), factor);
      return rest;
    }
    return Decomposed(Node(FloorMod(Sum(r), d)));
  }

  // ---- Conditions -------------------------------------------------------------------------------------------------

  Expr Compare(const Expr& e) {
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

  Expr LessThanZero(Affine a) {
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

  // f * A + B < 0 with B in [0, f)  ->  A < 0
  bool DivideOrder(Affine& a) {
    Affine multiple, rest;
    for (int64_t factor : FactorsOf(a, 0)) {
      if (!SplitByFactor(a, factor, &multiple, &rest)) continue;
      a = multiple;
      return true;
    }
    return false;
  }

  // floordiv(X, d) < c  ->  X < c * d
  static bool UnwrapQuotient(Affine& a) {
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

  Expr EqualsZero(Affine a) {
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

  Expr Negation(const Expr& e) {
    const Expr negated = Not(Run(e->args[0]));
    const std::optional<Affine> order = AsLessThanZero(negated);
    return order ? LessThanZero(*order) : Node(negated);  // into the form "a < b"
  }

  void FlattenJunction(const Expr& e, ExprKind kind, std::vector<Expr>& parts) {
    if (IsKind(e, kind)) {
      FlattenJunction(e->args[0], kind, parts);
      FlattenJunction(e->args[1], kind, parts);
      return;
    }
    AddPart(Run(e), kind, parts);
  }

  // Adds a simplified part unless another one says as much; drops those that it makes needless. A contradiction (of And)
  // or tautology (of Or) leaves the deciding literal as the only part.
  void AddPart(const Expr& part, ExprKind kind, std::vector<Expr>& parts) {
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

  Expr Junction(const Expr& e) {
    std::vector<Expr> parts;
    FlattenJunction(e, e->kind, parts);
    return Joined(parts, IsKind(e, ExprKind::kAnd));
  }

  // And of two simplified conditions.
  Expr Conjunction(const Expr& a, const Expr& b) {
    std::vector<Expr> parts;
    AddPart(a, ExprKind::kAnd, parts);
    AddPart(b, ExprKind::kAnd, parts);
    return Joined(parts, true);
  }

  Expr Joined(const std::vector<Expr>& parts, bool is_and) {
    Expr result = Bool(is_and);
    for (const Expr& part : parts) result = Node(is_and ? And(result, part) : Or(result, part));
    return result;
  }

  // ---- Selects ----------------------------------------------------------------------------------------------------

  Expr Choice(const Expr& e) {
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

  Expr RunAssuming(const Expr& condition, bool holds, const Expr& e) {
    if (e->args.empty() && !IsKind(e, ExprKind::kVar)) return e;
    Narrowing narrowed;
    if (depth_ < kMaxNarrowing) Assume(condition, holds, narrowed);
    if (narrowed.empty()) return Run(e);
    narrowed.insert(narrowed.begin(), narrowed_.begin(), narrowed_.end());
    return Simplifier(*this, std::move(narrowed)).Run(e);
  }

  // Ranges of variables that follow from the condition.
  void Assume(const Expr& condition, bool holds, Narrowing& out) const {
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

  // a < 0 for a = c * x + k.
  void AssumeNegative(const Affine& a, Narrowing& out) const {
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

  // ---- Bounds -----------------------------------------------------------------------------------------------------

  std::optional<Interval> ComputeBounds(const Expr& e) {
    switch (e->kind) {
      case ExprKind::kAdd:
      case ExprKind::kSub: return BoundsOf(Decomposed(e));
      case ExprKind::kMul: {
        const std::optional<Interval> a = BoundsOf(e->args[0]), b = BoundsOf(e->args[1]);
        if (!a || !b) return std::nullopt;
        return Product(*a, *b);
      }
      case ExprKind::kFloorDiv: {
        const std::optional<Interval> a = BoundsOf(e->args[0]);
        if (!a) return std::nullopt;
        return Interval{FloorDivInt(a->min, DivisorOf(e)), FloorDivInt(a->max, DivisorOf(e))};
      }
      case ExprKind::kFloorMod: return BoundsOfRemainder(BoundsOf(e->args[0]), DivisorOf(e));
      case ExprKind::kMin:
      case ExprKind::kMax: return BoundsOfExtremum(e);
      case ExprKind::kSelect: {
        const std::optional<Interval> a = BoundsOf(e->args[1]), b = BoundsOf(e->args[2]);
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
      case ExprKind::kCast: return BoundsOfCast(e);
      default: return std::nullopt;
    }
  }

  static std::optional<Interval> BoundsOfRemainder(const std::optional<Interval>& a, int64_t d) {
    if (a && FloorDivInt(a->min, d) == FloorDivInt(a->max, d)) return Interval{FloorModInt(a->min, d), FloorModInt(a->max, d)};
    return Checked({0, d - 1});
  }

  std::optional<Interval> BoundsOfExtremum(const Expr& e) {
    const std::optional<Interval> a = BoundsOf(e->args[0]), b = BoundsOf(e->args[1]);
    if (!a || !b) return std::nullopt;
    if (IsKind(e, ExprKind::kMin)) return Interval{std::min(a->min, b->min), std::min(a->max, b->max)};
    return Interval{std::max(a->min, b->min), std::max(a->max, b->max)};
  }

  // A cast between integers keeps a value that fits.
  std::optional<Interval> BoundsOfCast(const Expr& e) {
    if (IsFloat(e->dtype) || IsFloat(e->args[0]->dtype)) return std::nullopt;
    const std::optional<Interval> a = BoundsOf(e->args[0]);
    if (!a) return std::nullopt;
    const bool fits = IntImm(a->min, e->dtype)->value == a->min && IntImm(a->max, e->dtype)->value == a->max;
    return fits ? a : std::nullopt;
  }

  const Ranges& ranges_;
  Interner& interner_;
  const Narrowing narrowed_;
  const int depth_ = 0;
  std::unordered_map<const ExprNode*, Done> done_;           // shared nodes of the input
  std::unordered_map<const ExprNode*, KnownBounds> bounds_;  // nodes of canonical forms
};

int64_t DivisorOfExpr(const Expr& e);

int64_t DivisorOfAffine(const Affine& a) {
  if (!AllSmall(a)) return 1;
  int64_t g = a.constant;
  for (const auto& [term, coefficient] : a.terms) {
    const std::optional<int64_t> factor = SafeMul(coefficient, DivisorOfExpr(term));
    g = std::gcd(g, factor ? *factor : coefficient);
  }
  return g < 0 ? -g : g;
}

// Known divisor of an expression in canonical form.
int64_t DivisorOfExpr(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kIntImm: return IsSmall(e->value) ? std::abs(e->value) : 1;
    case ExprKind::kAdd:
    case ExprKind::kSub: return DivisorOfAffine(ToAffine(e));
    case ExprKind::kMul: {
      const int64_t a = DivisorOfExpr(e->args[0]);
      return SafeMul(a, DivisorOfExpr(e->args[1])).value_or(a);
    }
    case ExprKind::kFloorDiv: {
      const int64_t a = DivisorOfExpr(e->args[0]);
      return a % DivisorOf(e) == 0 ? a / DivisorOf(e) : 1;
    }
    case ExprKind::kFloorMod: return std::gcd(DivisorOfExpr(e->args[0]), DivisorOf(e));
    case ExprKind::kMin:
    case ExprKind::kMax: return std::gcd(DivisorOfExpr(e->args[0]), DivisorOfExpr(e->args[1]));
    case ExprKind::kSelect: return std::gcd(DivisorOfExpr(e->args[1]), DivisorOfExpr(e->args[2]));
    default: return 1;
  }
}

}  // namespace

int64_t Affine::CoefficientOf(const ExprNode* var) const {
  for (const auto& [term, coefficient] : terms)
    if (term.get() == var) return coefficient;
  return 0;
}

Affine ToAffine(const Expr& e) {
  Affine sum;
  CollectPlain<SameStructure>(e, 1, sum);
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
    sum = Sub(std::move(sum), Mul(term, IntImm(WrappingMul(coefficient, -1))));
  }
  return sum == nullptr ? IntImm(constant) : Add(std::move(sum), IntImm(constant));
}

void Analyzer::Bind(const Expr& var, int64_t extent) { Bind(var, Interval{0, extent - 1}); }

void Analyzer::Bind(const Expr& var, Interval range) {
  DIAPASON_CHECK_MSG(var->kind == ExprKind::kVar && range.min <= range.max, ToString(var));
  ranges_[var.get()] = range;
}

Expr Analyzer::Simplify(const Expr& e) {
  Interner interner;
  return Simplifier(ranges_, interner).Run(e);
}

std::optional<Interval> Analyzer::Bounds(const Expr& e) {
  Interner interner;
  Simplifier simplifier(ranges_, interner);
  return simplifier.BoundsOf(simplifier.Run(e));
}

bool Analyzer::Proves(const Expr& condition) { return IsInt(Simplify(condition), 1); }

int64_t Analyzer::KnownDivisor(const Expr& e) { return DivisorOfExpr(Simplify(e)); }

}  // namespace diapason
