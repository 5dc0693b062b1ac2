// Reductions that a loop of another stage carries (StepKind::kCarry): what they hold before the first step, and what
// sums relative to a maximum are multiplied by when it grows.
#pragma once

#include <utility>
#include <vector>

#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_parts.h"

namespace diapason {

// REQUIRES, of all: the stage is prepared (LoopValues). How much a maximum has grown is in a buffer of its own,
// KernelBuffers::growth.
class CarriedReductions {
 public:
  CarriedReductions(NestParts* parts, NestEmitter* emitter) : parts_(*parts), nest_(parts->state), emitter_(*emitter) {}

  // Before the first step: of what the loops of `carrier` carry, and of the maxima.
  Stmt Begin(int carrier);

  // exp(maximum before - maximum now), of the scaled difference where exponentials are of such, of the element that the
  // stage's loops are at; null where nothing is relative to a maximum.
  Expr GrowthOf(int id);
  // Whether one of the maxima that this thread has is larger than before; true where others have them.
  Expr MayGrow(int maximum) const;

  // The statement that computes a maximum, with how much it grew; the statement alone where nobody asks. The stage's
  // elements, from position `first` of its loops on, are stored at `index` under `guards`.
  Stmt WithGrowth(int id, size_t first, const Expr& index, const std::vector<Expr>& guards, Stmt maximum);

  // A value of the carried steps with scales as each thread holds them.
  Expr WithHeldScales(Expr value) const;

 private:
  Stmt BeginStage(int id);
  // Each thread takes the scale of a maximum's differences once: fences between steps would have it read in each.
  Stmt HoldScale(int maximum);

  NestParts& parts_;
  NestState& nest_;
  NestEmitter& emitter_;
  std::vector<std::pair<Expr, int>> held_;  // scales, and where threads hold them
};

}  // namespace diapason
