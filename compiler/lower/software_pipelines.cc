#include "compiler/lower/software_pipelines.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/tensor_box_of_copy.h"

namespace diapason {

void SoftwarePipelines::NameSlots(int id) {
  Expr fill, use;
  for (int child : nest_.kernel.skeleton.backwards()) {
    const StageState& copy = nest_.kernel.state.stage(child);
    const StageBounds& b = nest_.kernel.bounds.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != id || b.slots == 1) continue;
    StageValues& values = nest_.stages[child];
    if (b.bulk) {
      values.read_slot = MakeVar("held");
      nest_.analyzer.Bind(values.read_slot, b.slots);
      continue;
    }
    if (!fill) {
      fill = MakeVar("fill");
      use = MakeVar("use");
      nest_.analyzer.Bind(fill, b.slots);
      nest_.analyzer.Bind(use, b.slots);
    }
    values.write_slot = fill;
    values.read_slot = use;
  }
}

// The variables of the slots. InvalidArgument unless all shared copies at these loops are of the pipeline; beside a
// carried reduction others may be made step by step.
absl::Status SoftwarePipelines::FindSlots(SoftwarePipeline* p, size_t first) const {
  const StageState& stage = nest_.kernel.state.stage(p->id);
  for (int child : nest_.kernel.skeleton.backwards()) {
    const StageState& copy = nest_.kernel.state.stage(child);
    const StageBounds& b = nest_.kernel.bounds.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != p->id || copy.memory != Memory::kShared)
      continue;
    if (b.attach_position < static_cast<int>(first) || b.attach_position > static_cast<int>(p->last)) continue;
    if (stage.carry.is_carried_by(p->id) && b.slots == 1) continue;
    if (b.attach_position != static_cast<int>(p->last) || (b.slots != p->slots && !b.bulk))
      return absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage.op.name, ": all shared copies of a pipeline are computed at its innermost loop"));
    if (b.bulk) continue;
    p->fill = nest_.stages[child].write_slot;
    p->use = nest_.stages[child].read_slot;
  }
  if (!p->fill)
    return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": a pipeline needs shared copies"));
  return absl::OkStatus();
}

Stmt SoftwarePipelines::Emit(int id, const Loops& loops, const std::function<Stmt()>& inner) {
  const StageState& stage = nest_.kernel.state.stage(id);
  int64_t iterations = 1;
  for (size_t p = loops.first; p <= loops.last; ++p) iterations *= nest_.kernel.extent(id, p);
  SoftwarePipeline pipeline{.id = id,
                            .last = loops.last,
                            .end = loops.end,
                            .slots = loops.slots,
                            .iterations = iterations,
                            .step = MakeVar("step_" + Identifier(stage.op.name)),
                            .inner = inner};
  nest_.analyzer.Bind(pipeline.step, iterations + loops.slots - 1);
  if (absl::Status found = FindSlots(&pipeline, loops.first); !found.ok()) {
    nest_.Refuse(std::move(found));
    return nullptr;
  }
  // The loop variables as digits of the iteration.
  pipeline.at = [this, id, loops, iterations](const Expr& iteration, Stmt body) {
    int64_t inside = 1;
    for (size_t p = loops.last + 1; p-- > loops.first;) {
      const int64_t extent = nest_.kernel.extent(id, p);
      if (extent == 1) continue;
      Expr digit = FloorDiv(iteration, inside);
      if (inside * extent < iterations) digit = FloorMod(digit, extent);
      body = MakeLet(nest_.stages[id].leaf[p], nest_.analyzer.Simplify(digit), body);
      inside *= extent;
    }
    return body;
  };
  const bool carries = stage.carry.is_carried_by(id);
  if (nest_.kernel.OnWarpgroups(id) && !carries) return groups_.Emit(pipeline);
  return carries ? EmitCarriedSteps(pipeline) : EmitSteps(pipeline);
}

Stmt SoftwarePipelines::CopiesOf(const SoftwarePipeline& p, const Expr& iteration, const Stmt& copies) {
  return MakeLet(p.fill, nest_.analyzer.Simplify(FloorMod(iteration, p.slots)),
                 p.at(Min(iteration, IntImm(p.iterations - 1)), copies));
}

Stmt SoftwarePipelines::EmitSteps(const SoftwarePipeline& p) {
  const Stmt copies = attached_.EmitShared(p.id, p.last);
  ++nest_.serial_depth;
  const Stmt work = MakeSeq({attached_.EmitOwn(p.id, p.last), emitter_.EmitLoops(p.id, p.last + 1, p.end, p.inner)});
  --nest_.serial_depth;
  return LoopOverSteps(p, {.copies = copies, .work = work, .carries = false});
}

// Stages of a step that are not copied ahead are made in turn.
Stmt SoftwarePipelines::EmitCarriedSteps(const SoftwarePipeline& p) {
  std::vector<int> made_in_turn;
  std::vector<Stmt> ahead;
  for (int child : nest_.kernel.StagesAt(p.id, p.last)) {
    if (nest_.kernel.bounds.stages[child].slots == 1)
      made_in_turn.push_back(child);
    else
      ahead.push_back(emitter_.EmitStage(child));
  }
  const Stmt copies = MakeSeq(std::move(ahead));
  const bool two_are_enough = HasProducer(nest_.kernel, p.id) || groups_.IsWhole(p);
  if (nest_.kernel.OnWarpgroups(p.id) && p.slots > (two_are_enough ? 1 : 2) && p.iterations > 1)
    return groups_.EmitCarried(
        p, {.copies = [&](const Expr& iteration) { return CopiesOf(p, iteration, copies); }, .made = made_in_turn});
  ++nest_.serial_depth;
  const Stmt work = MakeSeq({attached_.EmitInTurn(std::move(made_in_turn), /*after_barrier=*/true),
                             emitter_.EmitLoops(p.id, p.last + 1, p.end, p.inner)});
  --nest_.serial_depth;
  return LoopOverSteps(p, {.copies = copies, .work = work, .carries = true});
}

Stmt SoftwarePipelines::LoopOverSteps(const SoftwarePipeline& p, const Step& of) {
  const Expr ahead = IntImm(p.slots - 1);
  const Stmt copies_if = MakeIf(Lt(p.step, IntImm(p.iterations)), CopiesOf(p, p.step, of.copies));
  const Expr iteration = Max(Sub(p.step, ahead), IntImm(0));
  const bool by_threads = copies_.tensor.HasCopiesByThreads(p);
  Stmt work = p.at(iteration,
                   MakeSeq({copies_.tensor.Await(p, iteration), copies_.bulk.Await(p.id, p.last, iteration, of.work)}));
  work = MakeIf(Le(ahead, p.step), MakeLet(p.use, FloorMod(Add(p.step, IntImm(1)), p.slots), work));
  const BulkCopies::OfPipeline bulk = copies_.bulk.Ask(p);
  const Stmt publish = of.carries ? copies_.core_matrices.Finish(p.id, p.last, iteration, p.slots) : nullptr;
  Stmt body = MakeSeq({by_threads ? MakeWait(p.slots - 2) : nullptr, publish, MakeBarrier(), copies_if,
                       by_threads ? MakeCommit() : nullptr, bulk.refill, work});
  return MakeSeq(
      {copies_.tensor.Init(p), bulk.start, MakeFor(ForKind::kSerial, p.step, p.iterations + p.slots - 1, body, 1)});
}

}  // namespace diapason
