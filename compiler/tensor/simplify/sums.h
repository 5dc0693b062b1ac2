// Arithmetic of sums in canonical form. Internal to compiler/tensor/simplify.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/tensor/simplify/affine.h"
#include "compiler/tensor/simplify/bounds.h"
#include "compiler/tensor/simplify/interner.h"

namespace diapason::simplify {

// Operands and results are canonical: their terms are interned and simplified. Interner and bounds outlive it.
class CanonicalSums {
 public:
  CanonicalSums(Interner& interner, CanonicalBounds& bounds) : interner_(interner), bounds_(bounds) {}

  // Puts quotients and remainders of the same number together again, to a fixed point.
  Affine Recombined(Affine sum);
  // Of sums that need not be recombined.
  Affine Times(Affine a, Affine b);
  Affine Extremum(const Affine& a, const Affine& b, bool is_min);
  // floordiv(a, d) and floormod(a, d). REQUIRES: d > 0.
  Affine Quotient(const Affine& a, int64_t d);
  Affine Remainder(const Affine& a, int64_t d);
  // r = factor * (*multiple) + *rest with rest in [0, factor), where `factor` divides some coefficients. False, with
  // both undefined, where that is not known of the rest.
  bool SplitByFactor(const Affine& r, int64_t factor, Affine* multiple, Affine* rest);

 private:
  // c * d * floordiv(X, d) + c * floormod(X, d)  ->  c * X
  bool JoinQuotientAndRemainder(Affine& sum);
  // c * X - c * d * floordiv(X, d)  ->  c * floormod(X, d)
  bool MakeRemainder(Affine& sum);
  // Quotient where no coefficient reaches d.
  Affine QuotientOfReduced(const Affine& r, int64_t d);
  // floordiv(term + constant, d) for a term that is a quotient or remainder itself.
  std::optional<Affine> QuotientOfAtom(const Expr& term, int64_t constant, int64_t d);
  // Coefficients reduced and multiples of d dropped. True if what is left lies in [0, d): the remainder itself.
  bool Reduce(const Affine& a, int64_t d, Affine* r);

  Interner& interner_;
  CanonicalBounds& bounds_;
};

}  // namespace diapason::simplify
