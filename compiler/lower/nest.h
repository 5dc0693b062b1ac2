// Emits the loop nest of one kernel: a root stage and the stages computed inside it.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/lower/bulk_copies.h"
#include "compiler/lower/carried_reductions.h"
#include "compiler/lower/core_matrix_copies.h"
#include "compiler/lower/group_products.h"
#include "compiler/lower/kernel_context.h"
#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_parts.h"
#include "compiler/lower/software_pipeline.h"
#include "compiler/lower/stmt.h"

namespace diapason {

class NestBuilder : private NestEmitter {
 public:
  // `next_buffer` gives ids to temporaries that are no stage's buffer; it goes on for the next kernel.
  NestBuilder(const KernelContext& kernel, int* next_buffer);

  // Once, of the context's root stage.
  absl::StatusOr<KernelFunc> Build();

 private:
  Stmt EmitStage(int id) override;
  Stmt EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner) override;
  Stmt EmitAttached(int id, size_t position);
  Stmt AttachedAt(int id, size_t position, bool shared);
  Stmt EmitInTurn(std::vector<int> stages, bool after_barrier = false);
  void NameSlots(int id);
  struct PipelinedLoops {
    size_t first, last;  // as one loop of iterations, and at the last of them copies are made
    size_t end;          // where the stage's own work begins
    int64_t slots;
  };
  Stmt EmitPipeline(int id, const PipelinedLoops& loops, const std::function<Stmt()>& inner);
  Stmt EmitReduction(int id);
  Stmt EmitCrossThread(int id);
  Stmt EmitCrossLane(int id);
  // Of products by warpgroups, in group_pipelines.cc.
  Stmt EmitGroupPipeline(const SoftwarePipeline& p);
  struct CarriedStep {
    std::function<Stmt(const Expr& iteration)> copies;  // that come ahead
    std::vector<int> made;                              // the other stages of a step, in turn
  };
  Stmt EmitCarriedGroupPipeline(const SoftwarePipeline& p, const CarriedStep& carried);

  const KernelContext& kernel_;
  const Skeleton& skeleton_;
  const State& state_;
  const Bounds& bounds_;
  const ClusterSplit& split_;
  NestParts parts_;
  NestState& nest_;
  Analyzer& analyzer_;
  BulkCopies bulk_;
  CoreMatrixCopies core_matrices_;
  CarriedReductions carried_;
  GroupHandover handover_;
};

}  // namespace diapason
