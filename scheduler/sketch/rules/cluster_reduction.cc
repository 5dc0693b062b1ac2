// Splits a reduction over the blocks of a thread-block cluster (split-K without a workspace and without a second
// kernel): each block accumulates every S-th tile of the reduction in registers and leaves the results in its shared
// memory, then all write the output tile together, each block its share, summed over the shared memory of all. S is a
// parameter. So is the number of sets of threads that a block has for the same tile, each with its share of k: more
// warps at work where small tiles leave few. In hand-written kernels on an H200 the split halved the time of all
// convolutions of ResNet-18 at batch 1, where the tiles of the output alone cannot fill the device.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/sketch/rules/cluster_tile.h"
#include "scheduler/sketch/rules/rules.h"
#include "scheduler/sketch/rules/tensor_tile.h"

namespace diapason {
namespace {

class ClusterReduction : public SketchRule {
 public:
  std::string name() const override { return "cluster_reduction"; }
  Answer Condition(const Draft& draft, int stage) const override {
    const StageState& s = draft.state().stage(stage);
    if (!s.computes() || !s.op.reduces() || s.prologue || !NeedsTiling(draft.state(), stage) || draft.TileOf(stage) ||
        IsBound(draft.state(), stage))
      return Answer::kSkip;
    if (s.attach != StageState::Attach::kRoot || static_cast<int>(s.loops.size()) != s.axis_count())
      return Answer::kSkip;
    if (s.op.name.find(".rf") != std::string::npos) return Answer::kSkip;  // split already
    if (ElementwiseConsumer(draft.state(), stage) < 0) return Answer::kSkip;
    return IsGemmLike(draft, stage) && !ClusterSizes(draft, stage).empty() ? Answer::kApply : Answer::kSkip;
  }

  std::vector<Derived> Apply(const Draft& draft, int stage) const override {
    std::vector<Derived> result;
    Draft next = draft;
    next.Name("cluster");
    TileForThreads(&next, stage);
    result.push_back({std::move(next), false});
    // Slices that do not end in zeros would have to divide by the number of blocks.
    if (FitsTensorCores(draft, stage) && EndsInZeros(draft, stage)) {
      OfferOnTensorCores(draft, stage, &result);
      if (MayRoundFactors(draft, stage)) {
        Draft rounded = draft;
        rounded.traits().rounds_factors = true;
        OfferOnTensorCores(rounded, stage, &result);
      }
    }
    return result;
  }

 private:
  static void OfferOnTensorCores(const Draft& draft, int stage, std::vector<Derived>* result) {
    std::vector<GroupForm> forms(1);
    for (const GroupForm& by_groups : FindGroupForms(draft, stage, ClusterSizes(draft, stage).back()))
      forms.push_back(by_groups);
    for (const GroupForm& groups : forms) {
      Draft next = draft;
      next.Name(absl::StrCat("cluster_", NameOfProducts(draft, groups.rows >= 0)));
      if (groups.turned) next.Name("turned");
      TileForTensorCores(&next, stage, groups);
      result->push_back({std::move(next), false});
    }
  }

  // Both: the stage becomes the tile in shared memory; the reduction goes into a new one.
  static void TileForThreads(Draft* draft, int stage) {
    bool gemm_like = false;
    const std::vector<bool> batch = BatchAxes(draft->state(), stage, &gemm_like);
    const std::vector<GpuTile> tiles = MakeGpuTiles(draft, stage, batch);
    TileInfo info = ShareTileOfThreads(draft, stage, tiles, MakeCluster(draft, stage));
    info.gemm_like = gemm_like;
    draft->AddTile(info);
  }

  static void TileForTensorCores(Draft* draft, int stage, const GroupForm& form) {
    TileInfo info;
    const GroupForm groups = RoundColumns(draft, stage, form);
    const std::vector<bool> batch = BatchAxes(draft->state(), stage, &info.gemm_like);
    const std::vector<TensorTile> tiles = MakeTensorTiles(draft, stage, batch, groups);
    const ClusterAxis cluster = MakeCluster(draft, stage, groups.rows < 0);
    info.threads = ThreadsOf(tiles) * cluster.thread_sets;
    SharedTile shared{{}, info.threads, cluster.blocks};
    for (const TensorTile& tile : tiles) shared.tiles.push_back(tile.all());
    info.stage = IntoSharedTile(draft, stage, shared);
    info.consumer = stage;
    PadTile(draft, stage, tiles);
    const TensorLoops loops = SplitForLanes(draft, stage, tiles, groups);
    draft->ComputeAt(info.stage, stage, {BindLanes(draft, loops)});
    const TensorReduction reduce = TileTensorReduction(draft, info.stage, tiles, loops, {cluster, groups});
    info.reduce_loop = reduce.loop;
    info.core_matrices = CoreMatricesOf(groups, tiles, reduce.tiles);
    draft->AddTile(info);
  }

  // Sets of warpgroups would need barriers of their own.
  static ClusterAxis MakeCluster(Draft* draft, int stage, bool with_sets = true) {
    const Factor blocks = draft->OptionParameter("cluster", ClusterSizes(*draft, stage), 4);
    const int axis = LongestReduceAxis(draft->state(), stage);
    return {axis, axis, blocks, with_sets ? draft->OptionParameter("thread_sets", {1, 2, 4}, 1) : Factor{}};
  }

  // The same from the lanes of products on tensor cores.
  static int BindLanes(Draft* draft, const TensorLoops& loops) {
    const std::vector<int> thread = loops.threads();
    std::vector<int> rest, order = thread;
    for (const auto* level : {&loops.outer, &loops.tile, &loops.pair})
      rest.insert(rest.end(), level->begin(), level->end());
    order.insert(order.end(), rest.begin(), rest.end());
    draft->Reorder(loops.stage, order);
    for (int loop : rest)
      draft->Annotate(loops.stage, loop, loop == rest.back() ? Annotation::kVectorize : Annotation::kUnroll);
    const int threads = draft->Fuse(loops.stage, thread);
    draft->Annotate(loops.stage, threads, Annotation::kThreadX);
    return threads;
  }

  // Pads the tile so that the lanes of a warp store into different banks. Along one axis eight lanes hold neighbours,
  // along the other four lanes hold pairs. Where the tile's rows run along the first, lanes are 2 rows apart, which is
  // 8 banks of 32 if rows have an odd number of 4 elements; else they are one row apart, of an odd number of 8.
  static void PadTile(Draft* draft, int stage, const std::vector<TensorTile>& tiles) {
    const TensorTile& last = tiles[SpatialAxes(draft->state(), stage).back()];
    if (!last.has_lanes() || last.apart) return;
    draft->Do({StepKind::kOddRows, stage, {}, {Factor::Of(last.rows() ? 4 : 8)}, -1, {}});
  }
};

}  // namespace

std::unique_ptr<SketchRule> MakeClusterReduction() { return std::make_unique<ClusterReduction>(); }

}  // namespace diapason
