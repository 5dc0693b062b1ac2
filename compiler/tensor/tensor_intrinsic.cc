#include "compiler/tensor/tensor_intrinsic.h"

#include "base/check.h"

namespace diapason {
namespace {

// 3xTF32: a product of 16x8x8 is 32 multiply-adds of each lane, done by three instructions of 6.2 cycles, as many to
// split operands, and a quarter of the loads (the shares are fitted to trials on an H200). float16 and bfloat16, not
// fitted: 64 multiply-adds of each lane in one instruction, and half of those loads.
constexpr TensorIntrinsic kIntrinsics[] = {
    {TensorMode::kThreeTf32, false, true, DType::kFloat32, "tf32", 80, 0.58, 0.3, 0.25},
    {TensorMode::kGroupThreeTf32, true, true, DType::kFloat32, "tf32", 90, 0.4, 0.03, 0.25, 0.047},
    {TensorMode::kHalf, false, false, DType::kFloat16, "f16", 80, 0.1, 0.03, 0.125},
    {TensorMode::kGroupHalf, true, false, DType::kFloat16, "f16", 90, 0.065, 0.005, 0.125, 0.008},
    {TensorMode::kBfloat16, false, false, DType::kBfloat16, "bf16", 80, 0.1, 0.03, 0.125},
    {TensorMode::kGroupBfloat16, true, false, DType::kBfloat16, "bf16", 90, 0.065, 0.005, 0.125, 0.008},
};

}  // namespace

absl::Span<const TensorIntrinsic> TensorIntrinsics() { return kIntrinsics; }

const TensorIntrinsic* FindTensorIntrinsic(int mode) {
  for (const TensorIntrinsic& intrinsic : kIntrinsics)
    if (static_cast<int>(intrinsic.mode) == mode) return &intrinsic;
  return nullptr;
}

const TensorIntrinsic& TensorIntrinsicOf(TensorMode mode) {
  const TensorIntrinsic* found = FindTensorIntrinsic(static_cast<int>(mode));
  DIAPASON_CHECK(found != nullptr);
  return *found;
}

}  // namespace diapason
