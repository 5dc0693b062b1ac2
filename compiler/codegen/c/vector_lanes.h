// The lanes of a vector loop.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "compiler/codegen/passes.h"
#include "compiler/tensor/expr.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

class VectorLanes {
 public:
  // Lanes 0 to `count` - 1 are the values of the variable. `analyzer` must outlive this.
  VectorLanes(Expr var, int64_t count, Analyzer& analyzer) : var_(std::move(var)), count_(count), analyzer_(analyzer) {}

  const Expr& var() const { return var_; }
  int64_t count() const { return count_; }

  bool Differ(const Expr& e) const { return UsesVar(e, var_.get()); }
  // The expression in one lane, simplified.
  Expr At(const Expr& e, int64_t lane) const;
  Stride StrideAlong(const Expr& index) const { return StrideOf(index, var_, analyzer_); }

  // What of a condition holds for all lanes at once. Sufficient, not necessary: both may be false.
  struct AllOrNone {
    Expr all, none;
  };
  // Nothing where lanes cannot be decided together.
  std::optional<AllOrNone> Decide(const Expr& condition) const;
  // The first condition of a select in the value that differs between lanes and can be decided; null: there is none.
  Expr FindDecidable(const Expr& value) const;

 private:
  const Expr var_;
  const int64_t count_;
  Analyzer& analyzer_;
};

}  // namespace diapason
