// Ranges of variables, and what conditions say of them. Internal to compiler/tensor/simplify.
#pragma once

#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/tensor/simplify.h"
#include "compiler/tensor/simplify/affine.h"

namespace diapason::simplify {

using Ranges = std::unordered_map<const ExprNode*, Interval>;

// `ranges` outlives it.
class KnownRanges {
 public:
  explicit KnownRanges(const Ranges& ranges) : ranges_(ranges) {}

  // Nothing where no range is known, or one beyond kLimit.
  std::optional<Interval> Of(const ExprNode* var) const;
  // These ranges where a condition in canonical form holds, or does not. Nothing where it narrows none, or where these
  // are ranges below 8 conditions already: every level simplifies anew what it shares with others.
  std::optional<KnownRanges> Assuming(const Expr& condition, bool holds) const;

 private:
  using Narrowing = std::vector<std::pair<const ExprNode*, Interval>>;

  void Assume(const Expr& condition, bool holds, Narrowing& out) const;
  // a < 0 for a = c * x + k.
  void AssumeNegative(const Affine& a, Narrowing& out) const;

  const Ranges& ranges_;
  Narrowing narrowed_;  // the last one of a variable holds
  int depth_ = 0;
};

}  // namespace diapason::simplify
