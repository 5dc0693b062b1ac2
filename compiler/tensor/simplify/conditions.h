// Comparisons of sums, and conjunctions and disjunctions, in canonical form. Internal to compiler/tensor/simplify.
#pragma once

#include <vector>

#include "compiler/tensor/simplify/affine.h"
#include "compiler/tensor/simplify/bounds.h"
#include "compiler/tensor/simplify/interner.h"
#include "compiler/tensor/simplify/sums.h"

namespace diapason::simplify {

// Operands and results are canonical. Interner, bounds and sums outlive it.
class CanonicalConditions {
 public:
  CanonicalConditions(Interner& interner, CanonicalBounds& bounds, CanonicalSums& sums)
      : interner_(interner), bounds_(bounds), sums_(sums) {}

  Expr LessThanZero(Affine a);
  Expr EqualsZero(Affine a);
  // And of two conditions.
  Expr Conjunction(const Expr& a, const Expr& b);
  // Adds a condition to the parts of an And or Or unless another one says as much; drops those that it makes needless.
  // A contradiction (of And) or tautology (of Or) leaves the deciding literal as the only part.
  void AddPart(const Expr& part, ExprKind kind, std::vector<Expr>& parts);
  // The And or Or of parts that AddPart collected.
  Expr Joined(const std::vector<Expr>& parts, ExprKind kind);

 private:
  // f * A + B < 0 with B in [0, f)  ->  A < 0
  bool DivideOrder(Affine& a);

  Interner& interner_;
  CanonicalBounds& bounds_;
  CanonicalSums& sums_;
};

}  // namespace diapason::simplify
