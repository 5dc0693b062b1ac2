#include "compiler/lower/cluster.h"

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

constexpr int64_t kMostParts = 1024;  // partial results of an element: the sum of them is written out

absl::Status Bad(const StageState& stage, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": ", what));
}

// The position of the stage's only loop over ranks of blocks, or over sets of threads; -1: it has none, -2: several.
int PositionOf(const StageState& stage, Annotation annotation) {
  int found = -1;
  for (size_t p = 0; p < stage.order.size(); ++p)
    if (stage.loops[stage.order[p]].annotation == annotation) found = found == -1 ? static_cast<int>(p) : -2;
  return found;
}

bool IsOnlyReader(const State& state, int reader, int of) { return state.Consumers(of) == std::vector<int>{reader}; }

// What the tile and the root must be for a reduction that is split. `root_loop`: of the root, over ranks; -1: there is
// none.
absl::Status Check(const Skeleton& skeleton, const Bounds& bounds, int root, const ClusterSplit& split, int root_loop) {
  const State& state = skeleton.state();
  const StageState& reduction = state.stage(split.reduction);
  const bool over_ranks = PositionOf(reduction, Annotation::kCluster) >= 0;
  const std::string over = over_ranks ? "over a cluster" : "over sets of threads";
  if (split.tile < 0 || split.tile == root)
    return Bad(reduction,
               absl::StrCat("a reduction ", over, " is computed in a stage that keeps its results in shared memory"));
  if (split.blocks > kMostParts || split.thread_sets > kMostParts / split.blocks)
    return Bad(reduction, absl::StrCat("each result is the sum of ", split.blocks, " x ", split.thread_sets,
                                       " parts, the most are ", kMostParts));
  const StageState& tile = state.stage(split.tile);
  if (tile.op.reduces() || tile.memory != Memory::kShared || tile.attach_stage != root)
    return Bad(tile, absl::StrCat("the results of a reduction ", over,
                                  " are kept in shared memory, computed in the kernel's root"));
  if (tile.op.body->kind != ExprKind::kLoad || tile.op.body->buffer != split.reduction)
    return Bad(tile, absl::StrCat("what is summed ", over, " must be a plain copy"));
  if (!IsOnlyReader(state, split.tile, split.reduction) || !IsOnlyReader(state, root, split.tile))
    return Bad(tile, absl::StrCat("what is summed ", over, " must have one reader, the kernel's root"));
  const StageState& top = state.stage(root);
  if (top.order.empty() || top.loops[top.order[0]].annotation != Annotation::kBlockX ||
      bounds.stages[split.tile].attach_position != 0)
    return Bad(tile,
               absl::StrCat("what is summed ", over, " is computed at the loop over blocks, the root's outermost"));
  if (over_ranks ? root_loop < 0 || bounds.stages[root].extent[root_loop] != split.blocks : root_loop >= 0)
    return Bad(top,
               absl::StrCat("a cluster of ", split.blocks, " blocks needs one loop of that extent over their ranks"));
  return absl::OkStatus();
}

// What is in shared memory inside the loop over sets of threads would be of one of them. A stage is inside a loop of
// the reduction by itself or by the stage that it is computed in.
absl::Status CheckThreadSets(const Skeleton& skeleton, const Bounds& bounds, int reduction_id, int position) {
  const State& state = skeleton.state();
  const StageState& reduction = state.stage(reduction_id);
  const struct Loop& sets = reduction.loops[reduction.order[position]];
  if (!sets.reduce || sets.origin != Loop::Origin::kSplit || sets.level == 0)
    return Bad(reduction, "the loop over sets of threads is an inner piece of a reduce loop that is split");
  for (int loop : reduction.order)
    if (reduction.loops[loop].annotation == Annotation::kThreadX)
      return Bad(reduction, "threads that share a result cannot be sets as well");
  for (int id : skeleton.backwards()) {
    if (state.stage(id).memory != Memory::kShared) continue;
    int inner = id;
    while (state.stage(inner).attach == StageState::Attach::kAt && state.stage(inner).attach_stage != reduction_id)
      inner = state.stage(inner).attach_stage;
    if (state.stage(inner).attach == StageState::Attach::kAt && bounds.stages[inner].attach_position >= position)
      return Bad(state.stage(id), "a copy in shared memory is computed outside of the loop over sets of threads");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClusterSplit> FindClusterSplit(const Skeleton& skeleton, const Bounds& bounds, int root) {
  const State& state = skeleton.state();
  ClusterSplit split;
  int root_loop = -1, position = -1;
  for (int id : skeleton.backwards()) {
    if (skeleton.root_of(id) != root) continue;
    const StageState& stage = state.stage(id);
    const int rank = PositionOf(stage, Annotation::kCluster), sets = PositionOf(stage, Annotation::kThreadSet);
    if (rank == -2) return Bad(stage, "more than one loop is bound to the rank in a cluster");
    if (sets == -2) return Bad(stage, "more than one loop is bound to sets of threads");
    const bool whole = rank >= 0 && !stage.loops[stage.order[rank]].reduce;
    if (whole && id != root) return Bad(stage, "only reductions and the kernel's root can be split over a cluster");
    if (whole) root_loop = stage.order[rank];
    if ((rank == -1 || whole) && sets == -1) continue;
    if (split.reduction >= 0) return Bad(stage, "a kernel can split one reduction over a cluster");
    split.reduction = id;
    position = sets;
    if (rank >= 0) split.blocks = bounds.stages[id].extent[stage.order[rank]];
    if (sets >= 0) split.thread_sets = bounds.stages[id].extent[stage.order[sets]];
    if (stage.attach == StageState::Attach::kAt) split.tile = stage.attach_stage;
  }
  if (split.reduction >= 0) {
    if (absl::Status status = Check(skeleton, bounds, root, split, root_loop); !status.ok()) return status;
  } else if (root_loop >= 0) {
    return Bad(state.stage(root), "its loop is bound to the rank in a cluster, but no reduction is");
  }
  if (position >= 0)
    if (absl::Status status = CheckThreadSets(skeleton, bounds, split.reduction, position); !status.ok()) return status;
  return split;
}

}  // namespace diapason
