// Loops of a stage as software pipelines (StepKind::kPipeline): copies of later iterations are under way while the
// stage computes.
#pragma once

#include <functional>
#include <vector>

#include "compiler/lower/attached_stages.h"
#include "compiler/lower/group_pipelines.h"
#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_state.h"
#include "compiler/lower/shared_copies.h"
#include "compiler/lower/software_pipeline.h"

namespace diapason {

// REQUIRES, of all: the pipeline's stage is prepared (LoopValues).
class SoftwarePipelines {
 public:
  SoftwarePipelines(NestState* nest, AttachedStages* attached, SharedCopies* copies, GroupPipelines* groups,
                    NestEmitter* emitter)
      : nest_(*nest), attached_(*attached), copies_(*copies), groups_(*groups), emitter_(*emitter) {}

  // Names the slots of the pipelined copies of a stage, before its body that reads them is lowered.
  void NameSlots(int id);

  struct Loops {
    size_t first, last;  // as one loop of iterations, and at the last of them copies are made
    size_t end;          // where the stage's own work begins
    int64_t slots;
  };
  // The loops [first, last] as one loop of iterations + slots - 1 steps: step t starts the copies of iteration t, into
  // the slot that iteration t - slots has left, and multiplies those of iteration t - slots + 1. One barrier a step:
  // behind it the copies that are waited for are visible, and nobody reads the slot that is filled next any more.
  // Products by warpgroups have steps of their own (GroupPipelines). Null after NestState::Refuse. REQUIRES: NameSlots.
  Stmt Emit(int id, const Loops& loops, const std::function<Stmt()>& inner);

 private:
  absl::Status FindSlots(SoftwarePipeline* pipeline, size_t first) const;
  Stmt EmitSteps(const SoftwarePipeline& pipeline);
  Stmt EmitCarriedSteps(const SoftwarePipeline& pipeline);
  // Of the copies, their slot and the loops of an iteration.
  Stmt CopiesOf(const SoftwarePipeline& pipeline, const Expr& iteration, const Stmt& copies);
  // The loop over steps. Each starts the copies of an iteration and does the work of an earlier one; `carries`: it
  // carries reductions, whose copies in core matrices are finished in the step that reads them.
  struct Step {
    Stmt copies, work;
    bool carries;
  };
  Stmt LoopOverSteps(const SoftwarePipeline& pipeline, const Step& step);

  NestState& nest_;
  AttachedStages& attached_;
  SharedCopies& copies_;
  GroupPipelines& groups_;
  NestEmitter& emitter_;
};

}  // namespace diapason
