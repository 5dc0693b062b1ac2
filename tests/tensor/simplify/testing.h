// Variables of known ranges, and the parts of the simplifier over them.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "compiler/tensor/simplify/bounds.h"
#include "compiler/tensor/simplify/interner.h"
#include "compiler/tensor/simplify/known_ranges.h"
#include "compiler/tensor/simplify/sums.h"

namespace diapason::simplify {

inline std::string RangeText(const std::optional<Interval>& range) {
  return range ? std::to_string(range->min) + ".." + std::to_string(range->max) : "unknown";
}

class CanonicalTest : public testing::Test {
 protected:
  CanonicalTest(const Interval& x, const Interval& y) : given_{{x_.get(), x}, {y_.get(), y}} {}

  const Expr x_ = MakeVar("x"), y_ = MakeVar("y");
  const Expr free_ = MakeVar("free");  // of no known range
  const Ranges given_;
  const KnownRanges ranges_{given_};
  Interner interner_;
  CanonicalBounds bounds_{ranges_};
  CanonicalSums sums_{interner_, bounds_};
};

}  // namespace diapason::simplify
