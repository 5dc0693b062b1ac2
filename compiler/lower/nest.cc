#include "compiler/lower/nest.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/lower/guards.h"
#include "compiler/lower/split_sums.h"

namespace diapason {
NestBuilder::NestBuilder(const KernelContext& kernel, int* next_buffer)
    : kernel_(kernel),
      skeleton_(kernel.skeleton),
      state_(kernel.state),
      bounds_(kernel.bounds),
      split_(kernel.split),
      parts_(kernel, next_buffer),
      nest_(parts_.state),
      analyzer_(nest_.analyzer),
      bulk_(&nest_),
      core_matrices_(&parts_, this),
      carried_(&parts_, this) {}

// What reads memory alone comes before what has more to do, which hides the way from there.
Stmt NestBuilder::AttachedAt(int id, size_t position, bool shared) {
  std::vector<int> stages = kernel_.StagesAt(id, position);
  std::stable_partition(stages.begin(), stages.end(), [&](int child) {
    const std::vector<int> producers = state_.Producers(child);
    return !state_.stage(child).op.reduces() && std::all_of(producers.begin(), producers.end(), [&](int producer) {
      return state_.stage(producer).attach == StageState::Attach::kRoot;
    });
  });
  std::vector<Stmt> all;
  for (int child : stages) {
    if (IsOfBlock(state_.stage(child).memory) != shared) continue;
    all.push_back(EmitStage(child));
  }
  return MakeSeq(all);
}

Stmt NestBuilder::EmitAttached(int id, size_t position) {
  const std::vector<int> stages = kernel_.StagesAt(id, position);
  const bool async =
      std::any_of(stages.begin(), stages.end(), [&](int child) { return state_.stage(child).async_copy; });
  const bool in_turn = async || std::any_of(stages.begin(), stages.end(), [&](int child) {
                         return IsOfBlock(state_.stage(child).memory) && kernel_.ReadsAny(child, stages);
                       });
  const bool apart = split_.reduction < 0 && kernel_.BulkCopiesAt(id, position).empty();
  if (in_turn && apart) return EmitInTurn(stages);
  if (async)
    nest_.Refuse(absl::InvalidArgumentError(
        absl::StrCat("stage ", state_.stage(id).op.name,
                     ": asynchronous copies stand beside bulk copies, or in a split reduction")));
  std::vector<Stmt> all;
  if (Stmt shared = MakeSeq({bulk_.AskOnce(id, position), AttachedAt(id, position, true)})) {
    if (nest_.serial_depth > 0) all.push_back(MakeBarrier());
    const bool tile = split_.blocks > 1 && id == kernel_.root &&
                      bounds_.stages[split_.tile].attach_position == static_cast<int>(position);
    all.push_back(shared);
    all.push_back(core_matrices_.Finish(id, position, IntImm(0), 1));
    if (tile) all.push_back(SumOfThreadSets(nest_));
    all.push_back(tile ? MakeClusterBarrier() : MakeBarrier());
    all.push_back(bulk_.AwaitOnce(id, position));
  }
  all.push_back(AttachedAt(id, position, false));
  return MakeSeq(all);
}

// Stages computed at one loop in their order, where one in shared memory needs others that are computed there: a
// barrier in front of the first that reads what other threads wrote since the last one, and of all in a loop unless one
// stands there (`after_barrier`). Asynchronous copies come first;
// a stage that reads one waits for it, and so for all that were asked for before it.
Stmt NestBuilder::EmitInTurn(std::vector<int> stages, bool after_barrier) {
  std::vector<Stmt> all;
  std::vector<int> written, asked;
  bool publish = false;  // what has been stored since the last barrier
  // Until what was asked for before `end` is there.
  const auto wait = [&](std::vector<int>::iterator end) {
    publish = publish || std::any_of(asked.begin(), end, [&](int copy) { return kernel_.IsPublished(copy); });
    asked.erase(asked.begin(), end);
    all.push_back(MakeWait(static_cast<int64_t>(asked.size())));
  };
  const auto barrier = [&] {
    if (std::exchange(publish, false)) all.push_back(MakeGroupSync(GroupSync::kPublish));
    all.push_back(MakeBarrier());
  };
  if (nest_.serial_depth > 0 && !after_barrier) all.push_back(MakeBarrier());
  const auto others =
      std::stable_partition(stages.begin(), stages.end(), [&](int child) { return state_.stage(child).async_copy; });
  for (auto child = stages.begin(); child != others; ++child) {
    all.insert(all.end(), {EmitStage(*child), MakeCommit()});
    asked.push_back(*child);
  }
  stages.erase(stages.begin(), others);
  for (int child : stages) {
    const auto last =
        std::find_if(asked.rbegin(), asked.rend(), [&](int copy) { return kernel_.ReadsInside(child, copy); });
    const bool waits = last != asked.rend();
    if (waits) wait(last.base());
    if (waits || std::any_of(written.begin(), written.end(), [&](int id) { return kernel_.ReadsInside(child, id); })) {
      barrier();
      written.clear();
    }
    all.push_back(EmitStage(child));
    publish = publish || kernel_.IsPublished(child);
    if (IsOfBlock(state_.stage(child).memory) && !kernel_.IsHeldByLanes(child)) written.push_back(child);
  }
  const bool asks = !asked.empty();
  if (asks) wait(asked.end());
  if (!written.empty() || asks) barrier();
  return MakeSeq(all);
}

// Names the slots of the pipelined copies of a stage, before its body that reads them is lowered.
void NestBuilder::NameSlots(int id) {
  Expr fill, use;
  for (int child : skeleton_.backwards()) {
    const StageState& copy = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != id || b.slots == 1) continue;
    if (b.bulk) {
      nest_.stages[child].read_slot = MakeVar("held");
      analyzer_.Bind(nest_.stages[child].read_slot, b.slots);
      continue;
    }
    if (!fill) {
      fill = MakeVar("fill");
      use = MakeVar("use");
      analyzer_.Bind(fill, b.slots);
      analyzer_.Bind(use, b.slots);
    }
    nest_.stages[child].write_slot = fill;
    nest_.stages[child].read_slot = use;
  }
}

// The loops [first, last] as one loop of iterations + slots - 1 steps: step t starts the copies of iteration t, into
// the slot that iteration t - slots has left, and multiplies those of iteration t - slots + 1. One barrier a step:
// behind it the copies that are waited for are visible, and nobody reads the slot that is filled next any more.
Stmt NestBuilder::EmitPipeline(int id, const PipelinedLoops& loops, const std::function<Stmt()>& inner) {
  const size_t first = loops.first, last = loops.last, end = loops.end;
  const int64_t slots = loops.slots;
  const StageState& stage = state_.stage(id);
  int64_t iterations = 1;
  for (size_t p = first; p <= last; ++p) iterations *= bounds_.stages[id].extent[stage.order[p]];
  const Expr step = MakeVar("step_" + Identifier(stage.op.name));
  analyzer_.Bind(step, iterations + slots - 1);
  const bool carries = stage.carry.is_carried_by(id);
  Expr fill, use;
  for (int child : skeleton_.backwards()) {
    const StageState& copy = state_.stage(child);
    const StageBounds& b = bounds_.stages[child];
    if (copy.attach != StageState::Attach::kAt || copy.attach_stage != id || copy.memory != Memory::kShared) continue;
    if (b.attach_position < static_cast<int>(first) || b.attach_position > static_cast<int>(last)) continue;
    if (carries && b.slots == 1) continue;
    if (b.attach_position != static_cast<int>(last) || (b.slots != slots && !b.bulk)) {
      nest_.Refuse(absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage.op.name, ": all shared copies of a pipeline are computed at its innermost loop")));
      return nullptr;
    }
    if (b.bulk) continue;
    fill = nest_.stages[child].write_slot;
    use = nest_.stages[child].read_slot;
  }
  if (!fill) {
    nest_.Refuse(absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": a pipeline needs shared copies")));
    return nullptr;
  }
  // The loop variables as digits of the iteration.
  auto at = [&](const Expr& iteration, Stmt body) {
    int64_t inside = 1;
    for (size_t p = last + 1; p-- > first;) {
      const int64_t extent = bounds_.stages[id].extent[stage.order[p]];
      if (extent == 1) continue;
      Expr digit = FloorDiv(iteration, inside);
      if (inside * extent < iterations) digit = FloorMod(digit, extent);
      body = MakeLet(nest_.stages[id].leaf[p], analyzer_.Simplify(digit), body);
      inside *= extent;
    }
    return body;
  };
  const SoftwarePipeline pipeline{.id = id,
                                  .last = last,
                                  .end = end,
                                  .slots = slots,
                                  .iterations = iterations,
                                  .step = step,
                                  .fill = fill,
                                  .use = use,
                                  .at = at,
                                  .inner = inner};
  if (kernel_.OnWarpgroups(id) && !carries) return EmitGroupPipeline(pipeline);
  const Expr ahead = IntImm(slots - 1);
  std::vector<int> made_in_turn;  // beside the copies that come ahead
  Stmt copies;
  if (carries) {
    std::vector<Stmt> each;
    for (int child : kernel_.StagesAt(id, last)) {
      if (bounds_.stages[child].slots == 1) {
        made_in_turn.push_back(child);
        continue;
      }
      each.push_back(EmitStage(child));
    }
    copies = MakeSeq(std::move(each));
  } else {
    copies = AttachedAt(id, last, true);
  }
  const auto copies_of = [&](const Expr& iteration) {
    return MakeLet(fill, analyzer_.Simplify(FloorMod(iteration, slots)),
                   at(Min(iteration, IntImm(iterations - 1)), copies));
  };
  if (kernel_.OnWarpgroups(id) && slots > 2 && iterations > 1)
    return EmitCarriedGroupPipeline(pipeline, {.copies = copies_of, .made = made_in_turn});
  const Stmt copies_if = MakeIf(Lt(step, IntImm(iterations)), copies_of(step));
  ++nest_.serial_depth;
  const Stmt attached =
      carries ? EmitInTurn(std::move(made_in_turn), /*after_barrier=*/true) : AttachedAt(id, last, false);
  Stmt work = MakeSeq({attached, EmitLoops(id, last + 1, end, inner)});
  --nest_.serial_depth;
  const Expr iteration = Max(Sub(step, ahead), IntImm(0));
  work = at(iteration, bulk_.Await(id, last, iteration, work));
  work = MakeIf(Le(ahead, step), MakeLet(use, FloorMod(Add(step, IntImm(1)), slots), work));
  const BulkCopies::OfPipeline bulk = bulk_.Ask(pipeline);
  const Stmt publish = carries ? core_matrices_.Finish(id, last, iteration, slots) : nullptr;
  Stmt body = MakeSeq({MakeWait(slots - 2), publish, MakeBarrier(), copies_if, MakeCommit(), bulk.refill, work});
  return MakeSeq({bulk.start, MakeFor(ForKind::kSerial, step, iterations + slots - 1, body, 1)});
}

Stmt NestBuilder::EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner) {
  const StageState& stage = state_.stage(id);
  if (position == end) return inner();
  size_t last = position;
  if (const int64_t slots = kernel_.PipelineSlots(id, position, &last); slots > 1 && last < end)
    return EmitPipeline(id, {.first = position, .last = last, .end = end, .slots = slots}, inner);
  const ForKind kind = parts_.loops.KindOf(id, position);
  const bool serial =
      (kind == ForKind::kSerial || kind == ForKind::kUnroll) && bounds_.stages[id].extent[stage.order[position]] > 1;
  nest_.serial_depth += serial;
  Stmt attached = EmitAttached(id, position);
  // The tile takes the place of the operands: all threads must have read them.
  if (attached && id == split_.tile) attached = MakeSeq({attached, MakeBarrier()});
  Stmt rest = EmitLoops(id, position + 1, end, inner);
  nest_.serial_depth -= serial;
  Stmt body = attached ? MakeSeq({attached, rest}) : rest;
  if (id == kernel_.root && position == 0 && split_.blocks > 1) body = MakeSeq({body, MakeClusterBarrier()});
  // Where buffers live.
  if (id == kernel_.root && parts_.loops.EndsOuter(id, position)) body = nest_.buffers.WithAllocations(body);
  return parts_.loops.Around(id, position, body);
}

Stmt NestBuilder::EmitStage(int id) {
  parts_.values.Prepare(id);
  const StageState& stage = state_.stage(id);
  if (stage.op.reduces()) return EmitReduction(id);
  auto statement = [&]() -> Stmt {
    bool unsafe = false;
    const Expr index = parts_.expressions.StoreIndex(id);
    Expr value = parts_.expressions.Lower(id, stage.op.body, &unsafe);
    const Guards guards = GuardsOf(nest_, id);
    // Partial results beyond the tensor are never read.
    if (!guards.domain.empty() && id != split_.tile)
      value = Select(And(guards.domain), value, IdentityOf(Combiner::kSum, stage.op.dtype));
    return parts_.lanes.WithShuffles(
        id, parts_.lanes.TakeShuffles(), guards.spatial.empty(),
        MakeIf(And(guards.spatial),
               MakeStore(id, index, value, nest_.stages[id].write_slot != nullptr || stage.async_copy)));
  };
  return EmitLoops(id, 0, stage.order.size(), statement);
}

absl::StatusOr<KernelFunc> NestBuilder::Build() {
  for (int id : state_.topological()) {
    const StageState& stage = state_.stage(id);
    if (skeleton_.root_of(id) == kernel_.root && stage.attach == StageState::Attach::kAt && stage.bulk)
      RETURN_IF_ERROR(CheckBulkCopy(kernel_, id));
  }
  KernelFunc kernel;
  kernel.name = "k_" + Identifier(state_.stage(kernel_.root).op.name);
  const Stmt body = EmitStage(kernel_.root);
  kernel.body = nest_.buffers.WithAllocations(body);
  if (!parts_.lanes.TakeShuffles().empty())
    nest_.Refuse(
        absl::InvalidArgumentError("what another lane has is read by a product, or by the loop that carries it"));
  RETURN_IF_ERROR(nest_.status);
  kernel.params = ParametersOf(kernel_);
  kernel.blocks = kernel_.blocks * split_.blocks;
  kernel.cluster = split_.blocks;
  kernel.threads = kernel_.threads;
  kernel.shared_bytes = SharedBytesOf(kernel.body);
  return kernel;
}

}  // namespace diapason
