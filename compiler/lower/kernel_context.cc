#include "compiler/lower/kernel_context.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/tensor/tensor_intrinsic.h"

namespace diapason {

absl::StatusOr<KernelContext> KernelContext::Create(const Skeleton& skeleton, const Bounds& bounds,
                                                    const Target& target, const OutputPlace& place, int root) {
  const State& state = skeleton.state();
  ASSIGN_OR_RETURN(const ClusterSplit split, FindClusterSplit(skeleton, bounds, root));
  int64_t threads = 1, blocks = 1;
  for (int loop : state.stage(root).order) {
    const Annotation annotation = state.stage(root).loops[loop].annotation;
    const int64_t extent = bounds.stages[root].extent[loop];
    if (annotation == Annotation::kThreadX) threads = extent;
    if (annotation == Annotation::kBlockX || annotation == Annotation::kParallel) blocks = extent;
  }
  // Stages inside may use threads where the root uses none: a reduction across threads into a block's single result.
  for (int id : skeleton.backwards()) {
    if (skeleton.root_of(id) != root) continue;
    for (int loop : state.stage(id).order)
      if (state.stage(id).loops[loop].annotation == Annotation::kThreadX && state.stage(id).loops[loop].reduce)
        threads = std::max(threads, bounds.stages[id].extent[loop]);
  }
  return KernelContext{.skeleton = skeleton,
                       .state = state,
                       .bounds = bounds,
                       .target = target,
                       .place = place,
                       .root = root,
                       .threads = threads,
                       .blocks = blocks,
                       .split = split};
}

bool KernelContext::IsHeldByLanes(int id) const {
  return state.stage(id).memory == Memory::kLanes && target.kind == TargetKind::kCuda;
}

bool KernelContext::OnTensorCores(int id) const {
  return state.stage(id).tensor != TensorMode::kNone && target.kind == TargetKind::kCuda;
}

bool KernelContext::OnWarpgroups(int id) const {
  return OnTensorCores(id) && TensorIntrinsicOf(state.stage(id).tensor).groups;
}

bool KernelContext::IsPublished(int id) const {
  return state.stage(id).core_matrices && target.kind == TargetKind::kCuda;
}

bool KernelContext::IsReadAhead(int id) const {
  const StageState& stage = state.stage(id);
  if (stage.memory != Memory::kLocal || !IsNarrowFloat(stage.op.dtype) || stage.op.reduces() ||
      stage.op.body->kind != ExprKind::kLoad)
    return false;
  const std::vector<int> readers = state.Consumers(id);
  return std::none_of(readers.begin(), readers.end(), [&](int reader) { return state.stage(reader).op.reduces(); });
}

int64_t KernelContext::ElementsOf(int id) const {
  return IsHeldByLanes(id) ? ElementsOfThread(state.stage(id), bounds.stages[id]) : bounds.stages[id].stored();
}

bool KernelContext::IsAttachedAt(int child, int id, size_t position) const {
  const StageState& stage = state.stage(child);
  return stage.attach == StageState::Attach::kAt && stage.attach_stage == id &&
         bounds.stages[child].attach_position == static_cast<int>(position);
}

std::vector<int> KernelContext::StagesAt(int id, size_t position) const {
  std::vector<int> stages;
  for (int child : state.topological())
    if (state.stage(child).computes() && !state.stage(child).bulk && IsAttachedAt(child, id, position))
      stages.push_back(child);
  std::stable_partition(stages.begin(), stages.end(), [&](int child) {
    const std::vector<int> producers = state.Producers(child);
    return std::none_of(producers.begin(), producers.end(), [&](int producer) {
      const Carry& carry = state.stage(producer).carry;
      return carry.is_carried() && std::count(stages.begin(), stages.end(), carry.target) > 0;
    });
  });
  return stages;
}

std::vector<int> KernelContext::BulkCopiesAt(int id, size_t position) const {
  std::vector<int> copies;
  for (int child : state.topological())
    if (state.stage(child).bulk && IsAttachedAt(child, id, position)) copies.push_back(child);
  return copies;
}

bool KernelContext::ReadsAny(int id, const std::vector<int>& stages) const {
  const std::vector<int> producers = state.Producers(id);
  return std::any_of(producers.begin(), producers.end(),
                     [&](int producer) { return std::count(stages.begin(), stages.end(), producer) > 0; });
}

bool KernelContext::ReadsInside(int id, int producer) const {
  if (ReadsAny(id, {producer})) return true;
  for (int child : state.topological()) {
    const StageState& stage = state.stage(child);
    if (stage.computes() && stage.attach == StageState::Attach::kAt && stage.attach_stage == id &&
        ReadsInside(child, producer))
      return true;
  }
  return false;
}

bool KernelContext::RunsOnce(int copy) const {
  const StageBounds& b = bounds.stages[copy];
  const int start =
      b.slots > 1 ? skeleton.PipelineStart(state.stage(copy).attach_stage, b.attach_position) : b.attach_position + 1;
  bool once = true;
  for (int at = copy, until = start; state.stage(at).attach == StageState::Attach::kAt;) {
    const int up = state.stage(at).attach_stage;
    for (int p = 0; p < until; ++p) {
      const int loop = state.stage(up).order[p];
      const Annotation annotation = state.stage(up).loops[loop].annotation;
      once &= bounds.stages[up].extent[loop] == 1 || annotation == Annotation::kBlockX ||
              annotation == Annotation::kThreadX || annotation == Annotation::kCluster;
    }
    at = up;
    until = bounds.stages[at].attach_position + 1;
  }
  return once;
}

int64_t KernelContext::PipelineSlots(int id, size_t position, size_t* last) const {
  for (int child : skeleton.backwards()) {
    const StageState& stage = state.stage(child);
    const StageBounds& b = bounds.stages[child];
    if (stage.attach != StageState::Attach::kAt || stage.attach_stage != id || b.slots == 1 || b.bulk) continue;
    if (skeleton.PipelineStart(id, b.attach_position) != static_cast<int>(position)) continue;
    *last = b.attach_position;
    return b.slots;
  }
  return 1;
}

}  // namespace diapason
