// Bounds of expressions in canonical form, which the simplifier makes. Internal to compiler/tensor/simplify.
#pragma once

#include <optional>
#include <unordered_map>

#include "compiler/tensor/simplify.h"
#include "compiler/tensor/simplify/known_ranges.h"

namespace diapason::simplify {

// Remembers what it computed. The ranges outlive it and do not change.
class CanonicalBounds {
 public:
  explicit CanonicalBounds(const KnownRanges& ranges) : ranges_(ranges) {}
  CanonicalBounds(const CanonicalBounds&) = delete;
  CanonicalBounds& operator=(const CanonicalBounds&) = delete;

  // Nothing where they are not known, or lie beyond kLimit.
  std::optional<Interval> Of(const Expr& e);
  std::optional<Interval> Of(const Affine& a);

 private:
  struct Known {
    Expr keep;  // the key is its address
    std::optional<Interval> bounds;
  };
  std::optional<Interval> Compute(const Expr& e);
  std::optional<Interval> OfExtremum(const Expr& e);
  // A cast between integers keeps a value that fits.
  std::optional<Interval> OfCast(const Expr& e);

  const KnownRanges& ranges_;
  std::unordered_map<const ExprNode*, Known> known_;
};

}  // namespace diapason::simplify
