// Replaces loops by copies of their bodies, in each of which the variable is a constant.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "compiler/lower/stmt.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// Expands some loops of a nest, and simplifies all of its expressions.
class LoopExpander {
 public:
  // Whether a loop is expanded. `inside`: a loop around it is expanded too, or was too large for it.
  using Wanted = std::function<bool(const StmtNode& loop, bool inside)>;

  // A wanted loop whose copies would hold more than `max_stores` stores becomes a serial loop with an unroll hint
  // instead. `analyzer`, which must outlive the expander, knows the ranges of the variables that the nest uses without
  // binding them, and gets those of its loops.
  LoopExpander(Analyzer& analyzer, Wanted wanted, int64_t max_stores = std::numeric_limits<int64_t>::max())
      : analyzer_(analyzer), wanted_(std::move(wanted)), max_stores_(max_stores) {}

  // The nest with these loops expanded and the variables in `values` replaced. Null: nothing is left to do.
  Stmt Expand(const Stmt& stmt, const VarMap& values = {});

 private:
  Stmt Run(const Stmt& stmt, bool inside);

  Analyzer& analyzer_;
  const Wanted wanted_;
  const int64_t max_stores_;
};

// Whether a store in the loop chooses its value (kSelect) by the loop's variable: the choices are then gone from the
// copies of an expanded loop. An example is the transform of Winograd's algorithm, whose constant matrix is written as
// a choice among its entries.
bool ChoosesByVariable(const StmtNode& loop);

// Stores that the statement executes in one iteration of the loops around it and of its own loops, except those of
// kind kUnroll, which are counted as expanded.
int64_t CountStores(const Stmt& stmt);

}  // namespace diapason
