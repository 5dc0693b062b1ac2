// One run of the simplifier. Internal to compiler/tensor/simplify.
//
// It works on affine forms: a sum is collected into constant + coefficients * terms, where the terms that are no
// variables ("atoms") are simplified before. A canonical form is taken apart where its parts are needed, never
// simplified again, so the cost of a tree is polynomial in its size. The rules call each other freely; a file holds
// those of a kind.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/tensor/simplify.h"
#include "compiler/tensor/simplify/affine.h"
#include "compiler/tensor/simplify/interner.h"

namespace diapason::simplify {

using Ranges = std::unordered_map<const ExprNode*, Interval>;
using Narrowing = std::vector<std::pair<const ExprNode*, Interval>>;

// Ranges and interner outlive it; results of runs with one interner share nodes.
class Simplifier {
 public:
  Simplifier(const Ranges& ranges, Interner& interner) : ranges_(ranges), interner_(interner) {}
  Expr Run(const Expr& e);
  // Bounds of an expression in canonical form.
  std::optional<Interval> BoundsOf(const Expr& e);
  std::optional<Interval> BoundsOf(const Affine& a);

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

  std::optional<Interval> RangeOf(const ExprNode* var) const;
  Expr RunLeaf(const Expr& e) const;
  Expr Compute(const Expr& e);
  Expr Node(const Expr& e) { return interner_.Node(e); }
  Expr Sum(const Affine& a) { return interner_.Sum(a); }

  // Sums (sums.cc).
  Affine Canonical(const Expr& e) { return Recombined(Collect(e)); }
  // The sum that e is, its atoms simplified.
  Affine Collect(const Expr& e);
  Affine CollectNode(const Expr& e);
  Affine Times(Affine a, Affine b);
  Affine Extremum(const Expr& e);
  // Puts quotients and remainders of the same number together again, to a fixed point.
  Affine Recombined(Affine sum);
  // c * d * floordiv(X, d) + c * floormod(X, d)  ->  c * X
  bool JoinQuotientAndRemainder(Affine& sum);
  // c * X - c * d * floordiv(X, d)  ->  c * floormod(X, d)
  bool MakeRemainder(Affine& sum);

  // Quotients and remainders (sums.cc).
  // Moves a multiple of d out of the constant, so that the smallest value of r lies in [0, d) if bounds are known (then
  // plain division serves in generated code), or the constant does. Returns how many d were taken out.
  int64_t NormaliseConstant(Affine& r, int64_t d, const std::optional<Interval>& bounds);
  // r = factor * (*multiple) + *rest with rest in [0, factor), where `factor` divides some coefficients.
  bool SplitByFactor(const Affine& r, int64_t factor, Affine* multiple, Affine* rest);
  Affine Quotient(const Affine& a, int64_t d);
  // Quotient where no coefficient reaches d.
  Affine QuotientOfReduced(const Affine& r, int64_t d);
  // floordiv(term + constant, d) for a term that is a quotient or remainder itself.
  std::optional<Affine> QuotientOfAtom(const Expr& term, int64_t constant, int64_t d);
  // Coefficients reduced and multiples of d dropped. True if what is left lies in [0, d): the remainder itself.
  bool Reduce(const Affine& a, int64_t d, Affine* r);
  Affine Remainder(const Affine& a, int64_t d);

  // Conditions (conditions.cc).
  Expr Compare(const Expr& e);
  Expr LessThanZero(Affine a);
  // f * A + B < 0 with B in [0, f)  ->  A < 0
  bool DivideOrder(Affine& a);
  Expr EqualsZero(Affine a);
  Expr Negation(const Expr& e);
  void FlattenJunction(const Expr& e, ExprKind kind, std::vector<Expr>& parts);
  // Adds a simplified part unless another one says as much; drops those that it makes needless. A contradiction (of
  // And) or tautology (of Or) leaves the deciding literal as the only part.
  void AddPart(const Expr& part, ExprKind kind, std::vector<Expr>& parts);
  Expr Junction(const Expr& e);
  // And of two simplified conditions.
  Expr Conjunction(const Expr& a, const Expr& b);
  Expr Joined(const std::vector<Expr>& parts, bool is_and);

  // Selects (selects.cc).
  Expr Choice(const Expr& e);
  Expr RunAssuming(const Expr& condition, bool holds, const Expr& e);
  // Ranges of variables that follow from the condition.
  void Assume(const Expr& condition, bool holds, Narrowing& out) const;
  // a < 0 for a = c * x + k.
  void AssumeNegative(const Affine& a, Narrowing& out) const;

  // Bounds of atoms (bounds.cc).
  std::optional<Interval> ComputeBounds(const Expr& e);
  std::optional<Interval> BoundsOfExtremum(const Expr& e);
  // A cast between integers keeps a value that fits.
  std::optional<Interval> BoundsOfCast(const Expr& e);

  const Ranges& ranges_;
  Interner& interner_;
  const Narrowing narrowed_;
  const int depth_ = 0;
  std::unordered_map<const ExprNode*, Done> done_;           // shared nodes of the input
  std::unordered_map<const ExprNode*, KnownBounds> bounds_;  // nodes of canonical forms
};

}  // namespace diapason::simplify
