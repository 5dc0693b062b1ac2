// Copies of a pipeline that are made by tensor copies (StepKind::kTensorCopy): one thread asks for the boxes of an
// iteration, which arrive at a barrier of their slot (mbarrier), and each thread waits there before it reads.
#pragma once

#include "compiler/lower/nest_state.h"
#include "compiler/lower/software_pipeline.h"

namespace diapason {

// REQUIRES, of all: the stages at whose loops the copies are made are prepared (LoopValues).
class TensorCopies {
 public:
  explicit TensorCopies(NestState* nest) : nest_(*nest) {}

  // Whether a stage is made so.
  bool Makes(int copy) const { return !nest_.kernel.state.stage(copy).bulk && nest_.buffers.arrivals(copy) >= 0; }
  // Of the tile at which the loops stand, into the slot that is filled.
  Stmt CopyInto(int copy);

  // What comes before all copies of a pipeline.
  Stmt Init(const SoftwarePipeline& pipeline);
  // Until the boxes of an iteration have arrived. Their slots must be known to be initialised: behind a barrier.
  Stmt Await(const SoftwarePipeline& pipeline, const Expr& iteration);
  // Whether threads make other copies of the pipeline, which end at waits for groups.
  bool LeavesCopies(const SoftwarePipeline& pipeline) const;

 private:
  std::vector<int> CopiesOf(const SoftwarePipeline& pipeline) const;
  // Whether the executing thread is the one that asks.
  Expr IsFirstThread(int copy) const;

  NestState& nest_;
};

}  // namespace diapason
