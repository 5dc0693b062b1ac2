// Expressions of stages as those of the nest: axes become loop variables, elements places in buffers.
#pragma once

#include <vector>

#include "compiler/lower/lane_registers.h"
#include "compiler/lower/nest_state.h"

namespace diapason {

// REQUIRES, of all: the stage and those around it are prepared (LoopValues).
class ExpressionLowering {
 public:
  ExpressionLowering(NestState* nest, LaneRegisters* lanes) : nest_(*nest), lanes_(*lanes) {}

  // An expression of the stage's body (or its carried maximum's load) where its loops stand. `unsafe` becomes true if
  // it reads beyond a buffer in iterations of no element or term; it is left alone else. Shuffles that it needs are
  // with the LaneRegisters.
  Expr Lower(int id, const Expr& e, bool* unsafe);

  // Where the stage's element is stored, in the slot that is filled and among the results of this set of threads.
  Expr StoreIndex(int id);

 private:
  Expr LowerLoad(int id, const Expr& load, bool* unsafe);
  Expr CompactIndex(const Access& access, int dim, const Expr& real) const;
  bool Holds(const Expr& comparison);

  NestState& nest_;
  LaneRegisters& lanes_;
  std::vector<Expr> conditions_;  // of the branches around the expression that is lowered
};

}  // namespace diapason
