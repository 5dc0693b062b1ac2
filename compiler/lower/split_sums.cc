#include "compiler/lower/split_sums.h"

#include <utility>

namespace diapason {

// Each block begins with its own share, so that no two ask the same block at once: the order of the sum is that of the
// ranks, from a start that depends on the element alone.
Expr SumOfParts(NestState& nest, const Expr& index) {
  const KernelContext& kernel = nest.kernel;
  const ClusterSplit& split = kernel.split;
  const DType dtype = kernel.state.stage(split.tile).op.dtype;
  Expr sum;
  const auto add = [&](std::vector<Expr> place) {
    const Expr part = Load(split.tile, dtype, std::move(place));
    sum = sum ? Combine(kernel.state.stage(split.reduction).op.combiner, sum, part) : part;
  };
  for (int64_t i = 0; i < split.blocks && split.blocks > 1; ++i)
    add({index, nest.analyzer.Simplify(FloorMod(Add(nest.rank, IntImm(i)), split.blocks))});
  for (int64_t i = 0; i < split.thread_sets && split.blocks == 1; ++i)
    add({nest.analyzer.Simplify(Add(index, IntImm(i * kernel.bounds.stages[split.tile].slot_stride())))});
  return sum;
}

// By vectors.
Stmt SumOfThreadSets(NestState& nest) {
  const KernelContext& kernel = nest.kernel;
  const ClusterSplit& split = kernel.split;
  if (split.thread_sets == 1) return nullptr;
  constexpr int64_t kLanes = 4;
  const DType dtype = kernel.state.stage(split.tile).op.dtype;
  const int64_t stride = kernel.bounds.stages[split.tile].slot_stride(), vectors = stride / kLanes;
  const int64_t rounds = (vectors + kernel.threads - 1) / kernel.threads;
  const Expr thread = MakeVar("thread"), round = MakeVar("round"), lane = MakeVar("lane");
  for (const auto& [var, extent] : {std::pair(thread, kernel.threads), {round, rounds}, {lane, kLanes}})
    nest.analyzer.Bind(var, extent);
  const Expr vector = Add(Mul(round, IntImm(kernel.threads)), thread);
  const Expr index = nest.analyzer.Simplify(Add(Mul(vector, IntImm(kLanes)), lane));
  const Combiner combiner = kernel.state.stage(split.reduction).op.combiner;
  Expr others;
  for (int64_t set = 1; set < split.thread_sets; ++set) {
    const Expr part = Load(split.tile, dtype, {Add(index, IntImm(set * stride))});
    others = others ? Combine(combiner, others, part) : part;
  }
  const Expr sum = Combine(combiner, Load(split.tile, dtype, {index}), others);
  Stmt work = MakeFor(ForKind::kVectorize, lane, kLanes, MakeStore(split.tile, index, sum));
  if (rounds * kernel.threads > vectors) work = MakeIf(nest.analyzer.Simplify(Lt(vector, IntImm(vectors))), work);
  work = MakeFor(ForKind::kThreadX, thread, kernel.threads, MakeFor(ForKind::kSerial, round, rounds, work));
  return MakeSeq({MakeBarrier(), work});
}

}  // namespace diapason
