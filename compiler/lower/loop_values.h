// What the loops of stages say of their axes.
#pragma once

#include "compiler/lower/nest_state.h"

namespace diapason {

// Gives a stage the variables of its loops, and says what its other loops and its axes are in terms of these and of the
// loops of stages around it.
class LoopValues {
 public:
  explicit LoopValues(NestState* nest) : nest_(*nest) {}

  // With new variables, in NestState::stages: before the stage's statements are emitted, and again wherever they are
  // emitted once more. REQUIRES: the stages around it are prepared.
  void Prepare(int id);

 private:
  void NameLeaves(int id);
  void GroupBlocks(int id, const struct Loop& loop, const Expr& block);
  Expr ValueOfPieces(int id, const struct Loop& loop) const;
  Expr ValueInFused(int id, int loop) const;
  void PrepareAxes(int id);
  void NoteAccesses(int id);
  void MarkUnrolled(int id);

  NestState& nest_;
};

// The sum of atoms, loops of stages by their coefficients, each of which the divisor divides.
Expr AtomSum(const NestState& nest, const Terms& terms, int64_t divisor);

// The number of the thread that computes what the stage's loops are at; null outside of loops over threads.
Expr ThreadOf(const NestState& nest, int id);

}  // namespace diapason
