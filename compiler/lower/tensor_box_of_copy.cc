#include "compiler/lower/tensor_box_of_copy.h"

#include <algorithm>

#include "compiler/schedule/tensor_of_copy.h"

namespace diapason {
namespace {

// Whether GPUs of the target have tensor copies; of one without an architecture its first device says.
bool HasTensorCopies(const Target& target) {
  return target.kind == TargetKind::kCuda && (target.arch.empty() || CudaArchNumber(target.arch) >= 90);
}

// One run of neighbours.
bool IsRun(const Region& region) {
  return region.full || region.levels.empty() || (region.levels.size() == 1 && region.levels[0].unit == 1);
}

// Whether runs of so many elements from where the region may begin lie each within the channels of one element of a
// window. Regions begin at a multiple of what all their atoms are multiples of.
bool AreWithinChannels(const Region& region, int64_t run, int64_t channels) {
  if (channels % run != 0) return false;
  if (region.full) return true;
  return region.constant_min % run == 0 &&
         std::all_of(region.outer.begin(), region.outer.end(), [&](const Term& t) { return t.coefficient % run == 0; });
}

// What one copy moves of a tensor with strides; false: hardware cannot. Dimensions of the tensor are those of the stage
// but for those of one element.
bool SetBox(const StageState& stage, const StageBounds& b, TensorBox* tensor) {
  size_t at = 0;
  for (size_t d = b.buffer.size(); d-- > 0;) {
    const bool inner = d + 1 == b.buffer.size();
    if (d + 2 < b.buffer.size() && b.buffer[d] != 1) return false;
    if (stage.op.axes[d].extent == 1 && !inner) {
      if (b.buffer[d] != 1) return false;
      continue;
    }
    tensor->box[at++] = inner ? b.core_row : b.buffer[d];
  }
  return true;
}

bool SetBoxOfWindows(const StageBounds& b, TensorBox* tensor) {
  tensor->box = {b.core_row, b.buffer[0]};
  return AreWithinChannels(b.region[1], b.core_row, tensor->extents[0]);
}

}  // namespace

std::optional<TensorBox> BoxOfCopy(const KernelContext& kernel, int copy) {
  const StageState& stage = kernel.state.stage(copy);
  const StageBounds& b = kernel.bounds.stages[copy];
  if (!IsMadeByTensorCopies(stage, b) || !HasTensorCopies(kernel.target) || kernel.state.has_low_parts(copy) ||
      kernel.state.is_rounded_in_place(copy) || !kernel.RunsOnce(copy))
    return std::nullopt;
  std::optional<TensorBox> tensor = TensorOfCopy(kernel.state, copy);
  if (!tensor) return std::nullopt;
  if (!std::all_of(b.region.begin(), b.region.end(), IsRun)) return std::nullopt;
  if (!(tensor->windows.empty() ? SetBox(stage, b, &*tensor) : SetBoxOfWindows(b, &*tensor))) return std::nullopt;
  tensor->swizzle = static_cast<int>(b.core_row * BytesOf(stage.op.dtype));
  const int from = LoadOfCopy(stage.op)->buffer;
  if (!IsCopyable(*tensor, BytesOf(stage.op.dtype), kernel.state.stage(from).op.elements())) return std::nullopt;
  return tensor;
}

bool HasProducer(const KernelContext& kernel, int id) {
  if (kernel.state.stage(id).producer.Eval({}) == 0 || !kernel.OnWarpgroups(id) || kernel.split.thread_sets > 1)
    return false;
  bool any = false;
  for (int copy : kernel.state.topological()) {
    const StageState& stage = kernel.state.stage(copy);
    if (!stage.computes() || stage.attach != StageState::Attach::kAt || stage.attach_stage != id ||
        kernel.bounds.stages[copy].slots == 1)
      continue;
    if (stage.bulk || !BoxOfCopy(kernel, copy)) return false;
    any = true;
  }
  return any;
}

}  // namespace diapason
