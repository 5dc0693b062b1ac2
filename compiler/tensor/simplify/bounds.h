// Bounds of expressions in canonical form, which the simplifier makes. Internal to compiler/tensor/simplify.
#pragma once

#include <optional>
#include <unordered_map>

#include "compiler/tensor/simplify.h"
#include "compiler/tensor/simplify/known_ranges.h"

namespace diapason::simplify {

// Caches its results. The ranges must outlive it and must not change.
class CanonicalBounds {
 public:
  explicit CanonicalBounds(const KnownRanges& ranges) : ranges_(ranges) {}
  CanonicalBounds(const CanonicalBounds&) = delete;
  CanonicalBounds& operator=(const CanonicalBounds&) = delete;

  // Nothing if the bounds are unknown or exceed kLimit.
  std::optional<Interval> Of(const Expr& e);
  std::optional<Interval> Of(const Affine& a);

 private:
  struct Known {
    Expr keep;  // keeps the node alive whose address is the key
    std::optional<Interval> bounds;
  };
  std::optional<Interval> Compute(const Expr& e);
  std::optional<Interval> OfExtremum(const Expr& e);
  // A cast between integer types preserves the bounds if all values fit.
  std::optional<Interval> OfCast(const Expr& e);

  const KnownRanges& ranges_;
  std::unordered_map<const ExprNode*, Known> known_;
};

}  // namespace diapason::simplify
