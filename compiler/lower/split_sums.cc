#include "compiler/lower/split_sums.h"

#include <utility>

namespace diapason {
namespace {

constexpr int64_t kLanes = 4;

// There is room for whole ones: results of a set are a multiple of them apart.
int64_t VectorsOfTile(const KernelContext& kernel) {
  return CeilDiv(kernel.bounds.stages[kernel.split.tile].elements(), kLanes);
}

// The groups in which threads first sum the results of all sets, side by side: as many as leave the fewest results to
// read one after the other, in both steps together. 1: one step is as good.
int64_t GroupsOfSets(const KernelContext& kernel) {
  constexpr int64_t kBarrier = 24;  // results that could be read instead
  const int64_t sets = kernel.split.thread_sets;
  int64_t best = 1, least = sets;
  for (int64_t groups = 2; groups < sets && groups * VectorsOfTile(kernel) <= kernel.threads; ++groups) {
    const int64_t reads = sets / groups + groups + kBarrier;
    if (sets % groups != 0 || reads >= least) continue;
    best = groups;
    least = reads;
  }
  return best;
}

// The sets whose results a step sums: `count` in each of `groups`, every `apart`-th, into the place of the group's
// first.
struct SumStep {
  int64_t groups, count, apart;
};

// By vectors. Of several groups each has threads of its own.
Stmt SumSets(NestState& nest, const SumStep& step) {
  const KernelContext& kernel = nest.kernel;
  const int tile = kernel.split.tile;
  const DType dtype = kernel.state.stage(tile).op.dtype;
  const int64_t stride = kernel.bounds.stages[tile].slot_stride() * step.apart, vectors = VectorsOfTile(kernel);
  const int64_t all = vectors * step.groups, rounds = (all + kernel.threads - 1) / kernel.threads;
  const Expr thread = MakeVar("thread"), round = MakeVar("round"), lane = MakeVar("lane");
  for (const auto& [var, extent] : {std::pair(thread, kernel.threads), {round, rounds}, {lane, kLanes}})
    nest.analyzer.Bind(var, extent);
  const Expr place = Add(Mul(round, IntImm(kernel.threads)), thread);
  const Expr vector = step.groups > 1 ? FloorMod(place, vectors) : place;
  Expr index = Add(Mul(vector, IntImm(kLanes)), lane);
  if (step.groups > 1) index = Add(Mul(FloorDiv(place, vectors), IntImm(step.count * stride)), index);
  index = nest.analyzer.Simplify(index);
  const Combiner combiner = kernel.state.stage(kernel.split.reduction).op.combiner;
  Expr others;
  for (int64_t i = 1; i < step.count; ++i) {
    const Expr part = Load(tile, dtype, {Add(index, IntImm(i * stride))});
    others = others ? Combine(combiner, others, part) : part;
  }
  const Expr sum = Combine(combiner, Load(tile, dtype, {index}), others);
  Stmt work = MakeFor(ForKind::kVectorize, lane, kLanes, MakeStore(tile, index, sum));
  if (rounds * kernel.threads > all) work = MakeIf(nest.analyzer.Simplify(Lt(place, IntImm(all))), work);
  return MakeFor(ForKind::kThreadX, thread, kernel.threads, MakeFor(ForKind::kSerial, round, rounds, work));
}

}  // namespace

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
  if (split.blocks > 1) add({index});
  for (int64_t i = 1; i < split.blocks; ++i)
    add({index, nest.analyzer.Simplify(FloorMod(Add(nest.rank, IntImm(i)), split.blocks))});
  if (split.blocks > 1) return sum;
  const int64_t groups = GroupsOfSets(kernel), parts = groups > 1 ? groups : split.thread_sets;
  const int64_t stride = kernel.bounds.stages[split.tile].slot_stride() * (split.thread_sets / parts);
  for (int64_t i = 0; i < parts; ++i) add({nest.analyzer.Simplify(Add(index, IntImm(i * stride)))});
  return sum;
}

Stmt SumOfThreadSets(NestState& nest) {
  const ClusterSplit& split = nest.kernel.split;
  const int64_t groups = GroupsOfSets(nest.kernel), count = split.thread_sets / groups;
  std::vector<Stmt> all;
  if (groups > 1) all = {MakeBarrier(), SumSets(nest, {groups, count, 1})};
  const SumStep last = groups > 1 ? SumStep{1, groups, count} : SumStep{1, split.thread_sets, 1};
  if (split.blocks > 1 && last.count > 1) all.insert(all.end(), {MakeBarrier(), SumSets(nest, last)});
  return all.empty() ? nullptr : MakeSeq(all);
}

}  // namespace diapason
