// One run of the simplifier. Internal to compiler/tensor/simplify.
//
// It converts an expression to canonical form. In this form an integer is a sum, constant + coefficients * terms, whose
// terms ("atoms") are variables or simplified expressions, and comparisons of order are "a < b". Canonical expressions
// are not simplified again, so that the cost is polynomial in the size of the tree.
//
// Simplifier traverses expressions of any form. The classes that it uses expect canonical forms: ranges under
// conditions (known_ranges.h), bounds (bounds.h), sums with quotients and remainders (sums.h), conditions
// (conditions.h).
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/tensor/simplify.h"
#include "compiler/tensor/simplify/bounds.h"
#include "compiler/tensor/simplify/conditions.h"
#include "compiler/tensor/simplify/interner.h"
#include "compiler/tensor/simplify/known_ranges.h"
#include "compiler/tensor/simplify/sums.h"

namespace diapason::simplify {

// The interner, and whatever the ranges refer to, must outlive it. Results of runs with one interner share nodes.
class Simplifier {
 public:
  Simplifier(KnownRanges ranges, Interner& interner)
      : ranges_(std::move(ranges)),
        interner_(interner),
        bounds_(ranges_),
        sums_(interner, bounds_),
        conditions_(interner, bounds_, sums_) {}
  Simplifier(const Simplifier&) = delete;
  Simplifier& operator=(const Simplifier&) = delete;

  Expr Run(const Expr& e);
  // Bounds of an expression in canonical form.
  std::optional<Interval> BoundsOf(const Expr& e) { return bounds_.Of(e); }

 private:
  struct Done {
    Expr keep;  // keeps the node alive whose address is the key
    Expr result;
  };

  Expr RunLeaf(const Expr& e) const;
  Expr Compute(const Expr& e);
  Expr RunAssuming(const Expr& condition, bool holds, const Expr& e);
  Affine Canonical(const Expr& e) { return sums_.Recombined(Collect(e)); }
  // `e` as a sum, with simplified atoms.
  Affine Collect(const Expr& e);
  Affine CollectNode(const Expr& e);
  Expr Compare(const Expr& e);
  Expr Negation(const Expr& e);
  Expr Junction(const Expr& e);
  void FlattenJunction(const Expr& e, ExprKind kind, std::vector<Expr>& parts);
  Expr Choice(const Expr& e);

  const KnownRanges ranges_;
  Interner& interner_;
  CanonicalBounds bounds_;
  CanonicalSums sums_;
  CanonicalConditions conditions_;
  std::unordered_map<const ExprNode*, Done> done_;  // results by node, since nodes of the input may be shared
};

}  // namespace diapason::simplify
