// Software pipelines around products by warpgroups, which run on their own (group_products.h).
#pragma once

#include <functional>
#include <vector>

#include "compiler/lower/attached_stages.h"
#include "compiler/lower/group_products.h"
#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_state.h"
#include "compiler/lower/shared_copies.h"
#include "compiler/lower/software_pipeline.h"

namespace diapason {

// REQUIRES, of all: the pipeline's stage is prepared (LoopValues), and its slots named (SoftwarePipelines).
class GroupPipelines {
 public:
  GroupPipelines(NestState* nest, AttachedStages* attached, SharedCopies* copies, NestEmitter* emitter,
                 GroupHandover* handover)
      : nest_(*nest), attached_(*attached), copies_(*copies), emitter_(*emitter), handover_(*handover) {}

  // A pipeline whose steps start the products of iteration t and beside them cut what iteration t + 1 needs in two and
  // start the copies of iteration t + slots - 1. A thread cuts what it has copied itself, so one barrier a step is
  // enough. Where both factors lie in shared memory, or rows without low parts come through registers for two
  // products along k or more, and there are more than two slots, the products of iteration t - 1 may be under way still
  // when those of t start: the copies that start then are of iteration t + slots - 2, into the slot of t - 2. Nothing
  // branches between the start of products and their wait: ptxas would make them wait for each other (C7514).
  //
  // With as many slots as steps all copies of a pipeline that runs once start at once, and if tensor copies make them
  // all, no step meets at a barrier of the block.
  Stmt Emit(const SoftwarePipeline& pipeline);

  // A pipeline whose loop carries reductions (StepKind::kCarry), with more than two slots: the products of a step, by
  // rows that were made in it, start behind the first products of the next one and run beside all that is computed from
  // these (Shah et al. 2024, "Intra-warpgroup overlap"). A step reads its own copies and, of the products' columns,
  // those of the step before, so copies are started slots - 2 iterations ahead.
  //
  // With more than three slots the warpgroups need not begin a step together, so that one computes while the products
  // of another are made: a thread arrives at a barrier once its first products of a step are done and its copies for
  // the next one are there, and waits at the beginning of that for the others to have arrived. They may then still read
  // what the step before the last one has left, so copies are started slots - 3 iterations ahead. As above, if tensor
  // copies make all and there are as many slots as steps (IsWhole; two are enough then), they start at once, and
  // nothing is waited for but them.
  struct CarriedStep {
    std::function<Stmt(const Expr& iteration)> copies;  // that come ahead
    std::vector<int> made;                              // the other stages of a step, in turn
  };
  Stmt EmitCarried(const SoftwarePipeline& pipeline, const CarriedStep& carried);

  // Whether tensor copies make all copies of the pipeline, each into a slot of its own.
  bool IsWhole(const SoftwarePipeline& pipeline) const;

 private:
  // Whether the pipeline runs once, with a slot for each step.
  bool FillsSlotsOnce(const SoftwarePipeline& pipeline) const;
  // A step with a producer: no warpgroup waits for another, and a slot is free once all have left it, so that two are
  // enough.
  Stmt EmitCarriedAndProduced(const SoftwarePipeline& pipeline, const std::vector<int>& made);
  // Barriers between warpgroups that do not begin a step together.
  struct Meeting {
    Stmt init, arrive, await;
  };
  // `landed`: what a thread's own copies for the next step are waited for and published with.
  Meeting MeetApart(const SoftwarePipeline& pipeline, const Stmt& landed);
  // The stages of a step in turn. `behind`: products that run behind their first ones; `after`: what comes once the
  // sums of those are there.
  Stmt EmitMade(const std::vector<int>& made, Stmt behind, const Stmt& after);

  NestState& nest_;
  AttachedStages& attached_;
  SharedCopies& copies_;
  NestEmitter& emitter_;
  GroupHandover& handover_;
};

}  // namespace diapason
