// What is computed at a loop of a stage before the stage continues: other stages, and the barriers between them.
#pragma once

#include <vector>

#include "compiler/lower/bulk_copies.h"
#include "compiler/lower/core_matrix_copies.h"
#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_state.h"

namespace diapason {

// REQUIRES, of all: the stage at whose loops others are computed is prepared (LoopValues).
class AttachedStages {
 public:
  AttachedStages(NestState* nest, BulkCopies* bulk, CoreMatrixCopies* core_matrices, NestEmitter* emitter)
      : nest_(*nest), bulk_(*bulk), core_matrices_(*core_matrices), emitter_(*emitter) {}

  // All that is computed at a loop without a pipeline: the stages of the block, between barriers, then those of the
  // thread, but for those that stages of the block need, which come first (reductions of a row); or all in turn, where
  // stages of the block read others of this loop or are copied asynchronously. Null if there are none.
  Stmt Emit(int id, size_t position);

  // The stages at a loop that all threads of the block share, or those that each has for itself. What reads memory
  // alone comes before what has more to do, which hides the way from there.
  Stmt EmitShared(int id, size_t position) { return EmitThose(id, position, true); }
  Stmt EmitOwn(int id, size_t position) { return EmitThose(id, position, false); }

  // Stages computed at one loop in their order, where one in shared memory needs others that are computed there: a
  // barrier in front of the first that reads what other threads wrote since the last one, and of all in a loop unless
  // one stands there (`after_barrier`). Asynchronous copies come first; a stage that reads one waits for it, and so for
  // all that were asked for before it.
  Stmt EmitInTurn(std::vector<int> stages, bool after_barrier = false);

 private:
  Stmt EmitThose(int id, size_t position, bool shared, const std::vector<int>& but = {});
  // Of stages at a loop, those of the thread that one of the block reads, or a stage computed inside it.
  std::vector<int> NeededByBlock(const std::vector<int>& stages) const;
  Stmt EmitBetweenBarriers(int id, size_t position);

  NestState& nest_;
  BulkCopies& bulk_;
  CoreMatrixCopies& core_matrices_;
  NestEmitter& emitter_;
};

}  // namespace diapason
