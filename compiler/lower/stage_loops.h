// How the loops of stages run: their kinds, and statements in them.
#pragma once

#include <functional>

#include "compiler/lower/nest_state.h"

namespace diapason {

// Positions count the leaf loops of a stage from the outermost on. REQUIRES, of all: the stage is prepared
// (LoopValues).
class StageLoops {
 public:
  explicit StageLoops(NestState* nest) : nest_(*nest) {}

  ForKind KindOf(int id, size_t position) const;
  // The loop at a position around a statement that is there in all its iterations: bound to what its kind says, with a
  // guard where a block has more threads; left out where it has one iteration. Null for no statement. Refused: more
  // threads than the block has, and sets of threads that are not all of it.
  Stmt Around(int id, size_t position, Stmt body);
  // The spatial loops from a position on, with variables of their own, around a statement made for them.
  Stmt SpatialNest(int id, size_t first, const std::function<Stmt(const VarMap& fresh)>& make);

  // True for the innermost of the leading parallel, block and thread loops, or the outermost of them at which a stage
  // is computed.
  bool EndsOuter(int id, size_t position) const;
  // The first reduce loop of a stage that reduces.
  size_t FirstReduction(int id) const;
  // Whether a loop from a position on reduces more than one term.
  bool HasReduction(int id, size_t from) const;
  // Position, `first` or behind it, from which on all loops are reduce loops or unrolled: the elements that are updated
  // there can stay in registers.
  size_t RegisterPosition(int id, size_t first) const;
  // Whether the stage comes to its elements in loops that are not unrolled before `first`: they are not all registers.
  bool InSerialLoops(int id, size_t first) const;

 private:
  Stmt OverThreadSets(const Expr& var, int64_t extent, Stmt body);

  NestState& nest_;
};

}  // namespace diapason
