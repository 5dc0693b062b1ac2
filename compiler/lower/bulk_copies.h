// Copies of constants that are made a whole tile at a time (StepKind::kBulkCopy). The constant lies in global memory as
// images of the copy's buffer, so that a tile is one run of bytes: on cuda one thread asks for it, it arrives at a
// barrier of its slot (mbarrier), and each thread waits there before it reads; on other targets the threads copy the
// run together.
#pragma once

#include "compiler/lower/nest_state.h"
#include "compiler/lower/software_pipeline.h"

namespace diapason {

// InvalidArgument unless the tiles of a bulk copy lie side by side in the constant, and its pipeline runs once.
absl::Status CheckBulkCopy(const KernelContext& kernel, int copy);

// REQUIRES, of all: the stages at whose loops the copies are made are prepared (LoopValues), and CheckBulkCopy.
class BulkCopies {
 public:
  explicit BulkCopies(NestState* nest) : nest_(*nest) {}

  // Copies at a loop without a pipeline, of one tile each: those are asked for, and, behind a barrier, waited for.
  Stmt AskOnce(int id, size_t position);
  Stmt AwaitOnce(int id, size_t position);

  // Copies of a pipeline: what comes before the loop over steps, and behind the barrier of a step.
  struct OfPipeline {
    Stmt start, refill;
  };
  OfPipeline Ask(const SoftwarePipeline& pipeline);
  // What reads the tiles of an iteration at loop `last` of a stage, behind their arrival.
  Stmt Await(int id, size_t last, const Expr& iteration, Stmt work);

 private:
  Expr Barrier(int copy, const Expr& slot);
  Stmt CopyInto(int copy, const Expr& slot);
  Stmt ByOneThread(int copy, Stmt stmt) const;

  NestState& nest_;
};

}  // namespace diapason
