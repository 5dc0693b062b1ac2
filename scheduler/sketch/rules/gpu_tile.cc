#include "scheduler/sketch/rules/gpu_tile.h"

#include <set>

namespace diapason {
namespace {

// Multiply-adds that are written out along one reduce axis, and along a row of a window: what neighbouring pixels share
// of that stays in registers while it is whole.
constexpr int32_t kMostUnrolled = 16, kMostUnrolledRow = 32;

struct ReduceLoops {
  std::vector<int> cluster, r0, sets, r1, r2;
};

ReduceLoops SplitReduce(Draft* draft, int stage, const ClusterAxis& cluster, ReduceTiles* made) {
  ReduceLoops loops;
  const std::vector<int> axes = ReduceAxes(draft->state(), stage);
  for (int axis : axes) {
    const int64_t extent = draft->state().stage(stage).axis(axis).extent;
    const std::string name = AxisName(draft->state(), stage, axis);
    const bool innermost = axis == axes.back();
    const Factor mid = draft->TileParameter(name + ".r1", extent, 64, innermost ? 4 : 1);
    const int32_t most = IsRowOfWindow(draft->state(), stage, axis) ? kMostUnrolledRow : kMostUnrolled;
    const Factor inner = draft->TileParameter(name + ".r2", extent, most, innermost ? 4 : 1);
    const bool blocks = axis == cluster.axis, sets = axis == cluster.set_axis;
    std::vector<Factor> factors;
    if (blocks) factors.push_back(cluster.blocks);
    if (sets) factors.push_back(cluster.thread_sets);
    factors.insert(factors.end(), {mid, inner});
    if (made) made->axes.push_back({axis, mid, inner});
    Factor tile;
    for (const Factor& factor : factors) tile = tile * factor;
    draft->parameters().BoundPadding(extent, tile);
    const std::vector<int> pieces = draft->Split(stage, axis, factors);
    loops.r0.push_back(pieces[0]);
    if (blocks) loops.cluster.push_back(pieces[1]);
    if (sets) loops.sets.push_back(pieces[blocks ? 2 : 1]);
    loops.r1.push_back(pieces[pieces.size() - 2]);
    loops.r2.push_back(pieces.back());
  }
  return loops;
}

// Stages in memory that a stage reads, through those that will be computed where they are copied.
void CollectRead(const Draft& draft, int stage, std::set<int>* read) {
  for (int producer : draft.state().Producers(stage)) {
    if (IsInjective(draft.state(), producer) && !draft.state().stage(producer).prologue)
      CollectRead(draft, producer, read);
    else
      read->insert(producer);
  }
}

int64_t BytesRead(const Draft& draft, int stage) {
  std::set<int> read;
  CollectRead(draft, stage, &read);
  int64_t bytes = 0;
  for (int id : read) bytes += draft.state().stage(id).op.elements() * BytesOf(draft.state().stage(id).op.dtype);
  return bytes;
}

}  // namespace

void OfferGroupsOfBlocks(Draft* draft, int stage, int consumer, int blocks, const std::vector<bool>& batch) {
  const StageState& s = draft->state().stage(stage);
  const size_t axes = s.op.axes.size();
  for (size_t a = 0; a < axes; ++a)
    if ((!batch[a] && s.op.axes[a].extent > 1) != (a + 2 >= axes)) return;
  if (axes < 2 || BytesRead(*draft, stage) <= draft->context().facts.l2_bytes) return;
  const Factor rows = draft->OptionParameter("raster", {1, 2, 4, 8, 16}, 1);
  draft->Do({StepKind::kGroupBlocks, consumer, {blocks}, {rows}, -1, {}});
}

std::vector<GpuTile> MakeGpuTiles(Draft* draft, int stage, const std::vector<bool>& batch) {
  std::vector<GpuTile> tiles;
  for (int axis : SpatialAxes(draft->state(), stage)) {
    const int64_t extent = draft->state().stage(stage).axis(axis).extent;
    const std::string name = AxisName(draft->state(), stage, axis);
    GpuTile tile;
    if (!batch[axis] && extent > 1) {
      tile.threads = draft->TileParameter(name + ".threads", extent, 512, 8);
      tile.s4 = draft->TileParameter(name + ".s4", extent, 16, 4);
      tile.vthreads = draft->TileParameter(name + ".vthreads", extent, 8, 1);
      tile.s3 = draft->TileParameter(name + ".s3", extent, 4, 1);
    }
    draft->parameters().BoundPadding(extent, tile.all());
    tiles.push_back(tile);
  }
  return tiles;
}

int TileThreadReduction(Draft* draft, int stage, const std::vector<GpuTile>& tiles, const ClusterAxis& cluster,
                        ReduceTiles* made) {
  const std::vector<int> axes = SpatialAxes(draft->state(), stage);
  std::vector<int> outer_tile, inner_tile;
  for (size_t a = 0; a < axes.size(); ++a) {
    const std::vector<int> pieces = draft->Split(stage, axes[a], {tiles[a].s4});
    outer_tile.push_back(pieces[0]);
    inner_tile.push_back(pieces[1]);
  }
  ReduceLoops reduce = SplitReduce(draft, stage, cluster, made);
  std::vector<int> order;
  for (const auto* level :
       {&reduce.cluster, &reduce.r0, &reduce.sets, &reduce.r1, &outer_tile, &reduce.r2, &inner_tile})
    order.insert(order.end(), level->begin(), level->end());
  draft->Reorder(stage, order);
  for (int loop : reduce.cluster) draft->Annotate(stage, loop, Annotation::kCluster);
  for (int loop : reduce.sets) draft->Annotate(stage, loop, Annotation::kThreadSet);
  for (const auto* level : {&outer_tile, &reduce.r2, &inner_tile})
    for (int loop : *level) draft->Annotate(stage, loop, Annotation::kUnroll);
  const Factor unroll = draft->OptionParameter("unroll", {0, 64, 256}, 0);
  draft->Do({StepKind::kUnroll, stage, {}, {unroll}, -1, {}});
  if (reduce.r0.empty()) return -1;
  const Factor stages = cluster.copies ? draft->OptionParameter("stages", {1, 2, 3, 4, 6}, 1) : Factor{};
  if (made) made->stages = stages;
  if (made) made->inner_loop = reduce.r1.back();
  draft->Do({StepKind::kPipeline, stage, {}, {stages}, -1, {}});
  return reduce.r0.back();
}

}  // namespace diapason
