#include "compiler/lower/cluster.h"

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

absl::Status Bad(const StageState& stage, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("stage ", stage.op.name, ": ", what));
}

// The stage's only loop over the rank of a block; -1: it has none, -2: several.
int RankLoop(const StageState& stage) {
  int found = -1;
  for (int loop : stage.order)
    if (stage.loops[loop].annotation == Annotation::kCluster) found = found == -1 ? loop : -2;
  return found;
}

bool IsOnlyReader(const State& state, int reader, int of) { return state.Consumers(of) == std::vector<int>{reader}; }

// What the tile and the root must be for a reduction that is split.
absl::Status Check(const Skeleton& skeleton, const Bounds& bounds, int root, const ClusterSplit& split, int root_loop) {
  const State& state = skeleton.state();
  const StageState& reduction = state.stage(split.reduction);
  if (split.tile < 0 || split.tile == root)
    return Bad(reduction, "a reduction over a cluster is computed in a stage that keeps its results in shared memory");
  const StageState& tile = state.stage(split.tile);
  if (tile.op.reduces() || tile.memory != Memory::kShared || tile.attach_stage != root)
    return Bad(tile, "the results of a reduction over a cluster are kept in shared memory, computed in the kernel's root");
  if (tile.op.body->kind != ExprKind::kLoad || tile.op.body->buffer != split.reduction)
    return Bad(tile, "what is summed over a cluster must be a plain copy");
  if (!IsOnlyReader(state, split.tile, split.reduction) || !IsOnlyReader(state, root, split.tile))
    return Bad(tile, "what is summed over a cluster must have one reader, the kernel's root");
  const StageState& top = state.stage(root);
  if (top.order.empty() || top.loops[top.order[0]].annotation != Annotation::kBlockX ||
      bounds.stages[split.tile].attach_position != 0)
    return Bad(tile, "what is summed over a cluster is computed at the loop over blocks, the root's outermost");
  if (root_loop < 0 || bounds.stages[root].extent[root_loop] != split.blocks)
    return Bad(top, absl::StrCat("a cluster of ", split.blocks, " blocks needs one loop of that extent over their ranks"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClusterSplit> FindClusterSplit(const Skeleton& skeleton, const Bounds& bounds, int root) {
  const State& state = skeleton.state();
  ClusterSplit split;
  int root_loop = -1;
  for (int id : skeleton.backwards()) {
    if (skeleton.root_of(id) != root) continue;
    const StageState& stage = state.stage(id);
    const int loop = RankLoop(stage);
    if (loop == -1) continue;
    if (loop == -2) return Bad(stage, "more than one loop is bound to the rank in a cluster");
    if (!stage.loops[loop].reduce) {
      if (id != root) return Bad(stage, "only reductions and the kernel's root can be split over a cluster");
      root_loop = loop;
      continue;
    }
    if (split.reduction >= 0) return Bad(stage, "a kernel can split one reduction over a cluster");
    split.blocks = bounds.stages[id].extent[loop];
    split.reduction = id;
    if (stage.attach == StageState::Attach::kAt) split.tile = stage.attach_stage;
  }
  if (split.reduction >= 0) {
    if (absl::Status status = Check(skeleton, bounds, root, split, root_loop); !status.ok()) return status;
  } else if (root_loop >= 0) {
    return Bad(state.stage(root), "its loop is bound to the rank in a cluster, but no reduction is");
  }
  return split;
}

}  // namespace diapason
