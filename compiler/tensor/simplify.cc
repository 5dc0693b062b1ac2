#include "compiler/tensor/simplify.h"

#include <cstdlib>
#include <numeric>

#include "base/check.h"
#include "compiler/tensor/simplify/simplifier.h"

namespace diapason {
namespace simplify {
namespace {

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
}  // namespace simplify

void Analyzer::Bind(const Expr& var, int64_t extent) { Bind(var, Interval{0, extent - 1}); }

void Analyzer::Bind(const Expr& var, Interval range) {
  DIAPASON_CHECK_MSG(var->kind == ExprKind::kVar && range.min <= range.max, ToString(var));
  ranges_[var.get()] = range;
}

Expr Analyzer::Simplify(const Expr& e) {
  simplify::Interner interner;
  return simplify::Simplifier(simplify::KnownRanges(ranges_), interner).Run(e);
}

std::optional<Interval> Analyzer::Bounds(const Expr& e) {
  simplify::Interner interner;
  simplify::Simplifier simplifier(simplify::KnownRanges(ranges_), interner);
  return simplifier.BoundsOf(simplifier.Run(e));
}

bool Analyzer::Proves(const Expr& condition) { return IsInt(Simplify(condition), 1); }

int64_t Analyzer::KnownDivisor(const Expr& e) { return simplify::DivisorOfExpr(Simplify(e)); }

}  // namespace diapason
