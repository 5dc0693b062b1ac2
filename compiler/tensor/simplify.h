// Simplification of index arithmetic: affine expressions with floordiv and floormod, by interval and modular facts.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/tensor/expr.h"

namespace diapason {

struct Interval {
  int64_t min, max;  // inclusive
};

// What is known of variables. Not safe for concurrent use while ranges are added.
class Analyzer {
 public:
  // The variable runs over [0, extent). A variable of extent 1 is replaced by 0. The variable must outlive the
  // analyzer.
  void Bind(const Expr& var, int64_t extent);
  void Bind(const Expr& var, Interval range);
  // Nothing is known of the variable any more.
  void Forget(const Expr& var) { ranges_.erase(var.get()); }

  // An equal expression, usually simpler: sums collected, floordiv and floormod cancelled where ranges allow,
  // comparisons decided where intervals decide them. Works inside loads, selects and calls too.
  Expr Simplify(const Expr& e);
  // Bounds of an integer expression; nothing if a variable in it has no range or it loads memory.
  std::optional<Interval> Bounds(const Expr& e);
  // True only if the condition holds for all values of its variables.
  bool Proves(const Expr& condition);
  // A number that divides the expression for all values of its variables (1 if nothing is known; 0 means e is 0).
  int64_t KnownDivisor(const Expr& e);

 private:
  std::unordered_map<const ExprNode*, Interval> ranges_;
};

// e = constant + sum of coefficient * term, where a term is a variable or an opaque subexpression (floordiv, load,
// ...). Terms are in order of first occurrence; none has coefficient 0.
struct Affine {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;
  int64_t CoefficientOf(const ExprNode* var) const;
};
Affine ToAffine(const Expr& e);
Expr FromAffine(const Affine& a);

}  // namespace diapason
