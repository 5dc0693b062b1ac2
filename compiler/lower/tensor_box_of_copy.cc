#include "compiler/lower/tensor_box_of_copy.h"

#include <vector>

namespace diapason {
namespace {

// Whether GPUs of the target have tensor copies; of one without an architecture its first device says.
bool HasTensorCopies(const Target& target) {
  return target.kind == TargetKind::kCuda && (target.arch.empty() || CudaArchNumber(target.arch) >= 90);
}

// The place in memory of what the copy loads, in terms of the copy's axes: quotients and remainders of reshaped tensors
// cancel there.
Expr FlatPlace(const Stage& from, const Expr& load) {
  Expr flat = IntImm(0);
  for (size_t d = 0; d < load->args.size(); ++d) flat = Add(Mul(flat, IntImm(from.axes[d].extent)), load->args[d]);
  return flat;
}

bool IsRowMajor(const StageState& stage) {
  return (stage.op.placeholder || stage.attach == StageState::Attach::kRoot) && stage.layout_factors.empty() &&
         stage.image_of < 0;
}

// One run of neighbours.
bool IsRun(const Region& region) {
  return region.full || region.levels.size() == 0 || (region.levels.size() == 1 && region.levels[0].unit == 1);
}

}  // namespace

std::optional<TensorBox> TensorOfCopy(const State& state, int copy) {
  const StageState& stage = state.stage(copy);
  if (stage.op.placeholder || stage.op.body->kind != ExprKind::kLoad || stage.op.reduces()) return std::nullopt;
  const StageState& from = state.stage(stage.op.body->buffer);
  if (!IsRowMajor(from) || from.op.dtype != stage.op.dtype) return std::nullopt;
  const Access::Dim place = AffineDim(stage, FlatPlace(from.op, stage.op.body));
  if (!place.affine) return std::nullopt;
  std::vector<int64_t> strides(stage.op.axes.size(), 0);
  for (const auto& [axis, coefficient] : place.axes) strides[axis] += coefficient;
  TensorBox tensor;
  tensor.offset = place.constant;
  for (size_t d = strides.size(); d-- > 0;) {
    if (stage.op.axes[d].extent == 1 && d + 1 < strides.size()) continue;
    tensor.extents.push_back(stage.op.axes[d].extent);
    tensor.strides.push_back(strides[d]);
    tensor.box.push_back(1);
  }
  if (tensor.extents.empty()) return std::nullopt;
  tensor.box[0] = 16 / BytesOf(stage.op.dtype);
  if (!IsCopyable(tensor, BytesOf(stage.op.dtype), from.op.elements())) return std::nullopt;
  return tensor;
}

std::optional<TensorBox> BoxOfCopy(const KernelContext& kernel, int copy) {
  const StageState& stage = kernel.state.stage(copy);
  const StageBounds& b = kernel.bounds.stages[copy];
  if (!IsMadeByTensorCopies(stage, b) || !HasTensorCopies(kernel.target) || kernel.state.has_low_parts(copy) ||
      kernel.state.is_rounded_in_place(copy))
    return std::nullopt;
  std::optional<TensorBox> tensor = TensorOfCopy(kernel.state, copy);
  if (!tensor) return std::nullopt;
  size_t at = 0;
  for (size_t d = b.buffer.size(); d-- > 0;) {
    const bool inner = d + 1 == b.buffer.size();
    if (!IsRun(b.region[d]) || (d + 2 < b.buffer.size() && b.buffer[d] != 1)) return std::nullopt;
    if (stage.op.axes[d].extent == 1 && !inner) {
      if (b.buffer[d] != 1) return std::nullopt;
      continue;
    }
    tensor->box[at++] = inner ? b.core_row : b.buffer[d];
  }
  tensor->swizzle = static_cast<int>(b.core_row * BytesOf(stage.op.dtype));
  const int from = stage.op.body->buffer;
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
    if (stage.bulk || !BoxOfCopy(kernel, copy) || !kernel.RunsOnce(copy)) return false;
    any = true;
  }
  return any;
}

}  // namespace diapason
