#include "scheduler/sketch/rules/cluster_tile.h"

#include "scheduler/sketch/rules/row_totals.h"

namespace diapason {
namespace {

// A block writes every S-th run of one vector a thread of the tile. Returns the loop over tiles.
int BindConsumer(Draft* draft, int consumer, const SharedTile& shared) {
  std::vector<int> outer, inner;
  for (int axis : SpatialAxes(draft->state(), consumer)) {
    const std::vector<int> pieces = draft->Split(consumer, axis, {shared.tiles[axis]});
    outer.push_back(pieces[0]);
    inner.push_back(pieces[1]);
  }
  std::vector<int> order = outer;
  order.insert(order.end(), inner.begin(), inner.end());
  draft->Reorder(consumer, order);
  const int block = draft->Fuse(consumer, outer);
  const int tile = draft->Fuse(consumer, inner);
  const Factor vector = draft->OptionParameter("write.vector", {1, 2, 4}, 4);
  const std::vector<int> pieces = draft->Split(consumer, tile, {shared.cluster, shared.threads, vector});
  draft->Reorder(consumer, {block, pieces[1], pieces[2], pieces[0], pieces[3]});
  draft->Annotate(consumer, block, Annotation::kBlockX);
  draft->Annotate(consumer, pieces[1], Annotation::kCluster);
  draft->Annotate(consumer, pieces[2], Annotation::kThreadX);
  draft->Annotate(consumer, pieces[3], Annotation::kVectorize);
  draft->Do({StepKind::kUnroll, consumer, {}, {Factor::Of(4)}, -1, {}});
  return block;
}

// Threads store their registers into the tile. Returns the loop over threads.
int BindThreads(Draft* draft, int stage, const std::vector<GpuTile>& tiles) {
  std::vector<int> rest, vthread, thread, s3, s4, order;
  for (int axis : SpatialAxes(draft->state(), stage)) {
    const GpuTile& t = tiles[axis];
    const std::vector<int> pieces = draft->Split(stage, axis, {t.vthreads, t.threads, t.s3, t.s4});
    rest.push_back(pieces[0]);  // one iteration
    vthread.push_back(pieces[1]);
    thread.push_back(pieces[2]);
    s3.push_back(pieces[3]);
    s4.push_back(pieces[4]);
  }
  for (const auto* level : {&thread, &rest, &vthread, &s3, &s4})
    order.insert(order.end(), level->begin(), level->end());
  draft->Reorder(stage, order);
  for (const auto* level : {&rest, &vthread, &s3, &s4})
    for (int loop : *level)
      draft->Annotate(stage, loop, loop == s4.back() ? Annotation::kVectorize : Annotation::kUnroll);
  const int threads = draft->Fuse(stage, thread);
  draft->Annotate(stage, threads, Annotation::kThreadX);
  return threads;
}

}  // namespace

std::vector<int32_t> ClusterSizes(const Draft& draft, int stage) {
  const StageState& s = draft.state().stage(stage);
  const int64_t extent = s.axis(LongestReduceAxis(draft.state(), stage)).extent;
  const int64_t reduce = s.op.terms(), space = s.op.elements();
  const int64_t fill = static_cast<int64_t>(draft.context().facts.num_cores) * 8192;
  std::vector<int32_t> sizes;
  for (int32_t blocks : {2, 3, 4, 6, 8, 12, 16})
    if (blocks <= draft.context().facts.max_cluster && extent / blocks >= 8 && reduce / blocks >= 32 &&
        space * blocks <= fill)
      sizes.push_back(blocks);
  if (!sizes.empty()) sizes.insert(sizes.begin(), 1);
  return sizes;
}

bool IsGemmLike(const Draft& draft, int stage) {
  bool gemm_like = false;
  BatchAxes(draft.state(), stage, &gemm_like);
  return gemm_like;
}

int IntoSharedTile(Draft* draft, int stage, const SharedTile& tile) {
  const int consumer = ElementwiseConsumer(draft->state(), stage);
  const int block = BindConsumer(draft, consumer, tile);
  const int reduction = draft->CacheWrite(stage, Memory::kLocal);
  draft->Do({StepKind::kSetScope, stage, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
  ShareRowTotals(draft, consumer, block, tile.threads);
  draft->ComputeAt(stage, consumer, {block});
  return reduction;
}

TileInfo ShareTileOfThreads(Draft* draft, int stage, const std::vector<GpuTile>& tiles, const ClusterAxis& cluster,
                            ReduceTiles* made) {
  TileInfo info;
  SharedTile shared;
  for (const GpuTile& tile : tiles) {
    info.threads = info.threads * tile.threads;
    shared.tiles.push_back(tile.all());
  }
  info.threads = info.threads * cluster.thread_sets;
  shared.threads = info.threads;
  shared.cluster = cluster.blocks;
  info.stage = IntoSharedTile(draft, stage, shared);
  info.consumer = stage;
  draft->ComputeAt(info.stage, stage, {BindThreads(draft, stage, tiles)});
  info.reduce_loop = TileThreadReduction(draft, info.stage, tiles, cluster, made);
  return info;
}

}  // namespace diapason
