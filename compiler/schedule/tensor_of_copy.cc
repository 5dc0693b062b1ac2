#include "compiler/schedule/tensor_of_copy.h"

#include <vector>

#include "compiler/schedule/bounds.h"
#include "compiler/schedule/windows_of_copy.h"

namespace diapason {
namespace {

// The place in memory of what the copy loads, in terms of the copy's axes: quotients and remainders of reshaped tensors
// cancel there.
Expr FlatPlace(const Stage& from, const Expr& load) {
  Expr flat = IntImm(0);
  for (size_t d = 0; d < load->args.size(); ++d) flat = Add(Mul(flat, IntImm(from.axes[d].extent)), load->args[d]);
  return flat;
}

// Nullopt: it is no tensor with strides.
std::optional<TensorBox> PlainTensorOfCopy(const State& state, int copy) {
  const StageState& stage = state.stage(copy);
  if (stage.op.placeholder || stage.op.body->kind != ExprKind::kLoad || stage.op.reduces()) return std::nullopt;
  const StageState& from = state.stage(stage.op.body->buffer);
  if (!from.is_row_major() || from.op.dtype != stage.op.dtype) return std::nullopt;
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

}  // namespace

Expr LoadOfCopy(const Stage& copy) {
  if (copy.placeholder || copy.reduces()) return nullptr;
  const bool guarded = copy.body->kind == ExprKind::kSelect && IsZero(copy.body->args[2]);
  const Expr& value = guarded ? copy.body->args[1] : copy.body;
  return value->kind == ExprKind::kLoad ? value : nullptr;
}

std::optional<TensorBox> TensorOfCopy(const State& state, int copy) {
  std::optional<TensorBox> tensor = PlainTensorOfCopy(state, copy);
  return tensor ? tensor : WindowsOfCopy(state, copy);
}

}  // namespace diapason
