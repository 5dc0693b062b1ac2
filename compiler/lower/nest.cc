#include "compiler/lower/nest.h"

#include <utility>

#include "base/check.h"
#include "compiler/lower/cross_reductions.h"
#include "compiler/lower/guards.h"
#include "compiler/lower/reductions.h"

namespace diapason {

NestBuilder::NestBuilder(const KernelContext& kernel, int* next_buffer)
    : kernel_(kernel),
      parts_(kernel, next_buffer),
      copies_(&parts_, this),
      attached_(&parts_.state, &copies_.bulk, &copies_.core_matrices, this),
      groups_(&parts_.state, &attached_, &copies_, this, &handover_),
      pipelines_(&parts_.state, &attached_, &copies_, &groups_, this),
      carried_(&parts_, this) {}

Stmt NestBuilder::EmitLoops(int id, size_t position, size_t end, const std::function<Stmt()>& inner) {
  if (position == end) return inner();
  size_t last = position;
  if (const int64_t slots = kernel_.PipelineSlots(id, position, &last); slots > 1 && last < end)
    return pipelines_.Emit(id, {.first = position, .last = last, .end = end, .slots = slots}, inner);
  const ForKind kind = parts_.loops.KindOf(id, position);
  const bool serial = (kind == ForKind::kSerial || kind == ForKind::kUnroll) && kernel_.extent(id, position) > 1;
  parts_.state.serial_depth += serial;
  Stmt attached = attached_.Emit(id, position);
  // The tile takes the place of the operands: all threads must have read them.
  if (attached && id == kernel_.split.tile) attached = MakeSeq({attached, MakeBarrier()});
  Stmt rest = EmitLoops(id, position + 1, end, inner);
  parts_.state.serial_depth -= serial;
  Stmt body = attached ? MakeSeq({attached, rest}) : rest;
  if (id == kernel_.root && position == 0 && kernel_.split.blocks > 1) body = MakeSeq({body, MakeClusterEnd()});
  // Where buffers live.
  if (id == kernel_.root && parts_.loops.EndsOuter(id, position)) body = parts_.state.buffers.WithAllocations(body);
  return parts_.loops.Around(id, position, body);
}

Stmt NestBuilder::EmitStage(int id) {
  if (copies_.tensor.Makes(id)) return copies_.tensor.CopyInto(id);
  parts_.values.Prepare(id);
  if (!kernel_.state.stage(id).op.reduces())
    return EmitLoops(id, 0, kernel_.state.stage(id).order.size(), [&] { return EmitStatement(id); });
  if (IsAcrossThreads(kernel_, id)) return EmitAcrossThreads(parts_, *this, id);
  if (IsAcrossLanes(kernel_, id)) return EmitAcrossLanes(parts_, *this, id);
  pipelines_.NameSlots(id);
  return EmitReduction({.parts = parts_, .carried = carried_, .handover = handover_, .emitter = *this}, id);
}

// Of a stage that does not reduce.
Stmt NestBuilder::EmitStatement(int id) {
  const StageState& stage = kernel_.state.stage(id);
  bool unsafe = false;
  const Expr index = parts_.expressions.StoreIndex(id);
  Expr value = carried_.WithHeldScales(parts_.expressions.Lower(id, stage.op.body, &unsafe));
  const Guards guards = GuardsOf(parts_.state, id);
  // Partial results beyond the tensor are never read.
  if (!guards.domain.empty() && id != kernel_.split.tile)
    value = Select(And(guards.domain), value, IdentityOf(Combiner::kSum, stage.op.dtype));
  const bool async = parts_.state.stages[id].write_slot != nullptr || stage.async_copy;
  return parts_.lanes.WithShuffles(id, parts_.lanes.TakeShuffles(), guards.spatial.empty(),
                                   MakeIf(And(guards.spatial), MakeStore(id, index, value, async)));
}

absl::StatusOr<KernelFunc> NestBuilder::Build() {
  for (int id : kernel_.state.topological()) {
    const StageState& stage = kernel_.state.stage(id);
    if (kernel_.skeleton.root_of(id) == kernel_.root && stage.attach == StageState::Attach::kAt && stage.bulk)
      RETURN_IF_ERROR(CheckBulkCopy(kernel_, id));
  }
  KernelFunc kernel;
  kernel.name = "k_" + Identifier(kernel_.state.stage(kernel_.root).op.name);
  const Stmt body = EmitStage(kernel_.root);
  kernel.body = parts_.state.buffers.WithAllocations(body);
  if (!parts_.lanes.TakeShuffles().empty())
    parts_.state.Refuse(
        absl::InvalidArgumentError("what another lane has is read by a product, or by the loop that carries it"));
  RETURN_IF_ERROR(parts_.state.status);
  kernel.params = ParametersOf(kernel_);
  kernel.blocks = kernel_.blocks * kernel_.split.blocks;
  kernel.cluster = kernel_.split.blocks;
  kernel.threads = kernel_.threads;
  kernel.shared_bytes = SharedBytesOf(kernel.body);
  kernel.producer = parts_.state.producer;
  kernel.before_roles = parts_.state.before_roles;
  kernel.constants_first = parts_.state.constants_first;
  return kernel;
}

}  // namespace diapason
