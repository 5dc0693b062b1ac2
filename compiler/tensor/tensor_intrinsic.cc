#include "compiler/tensor/tensor_intrinsic.h"

#include "base/check.h"

namespace diapason {
namespace {

constexpr FactorType kTf32[] = {{DType::kFloat32, "tf32"}};
constexpr FactorType kHalves[] = {{DType::kFloat16, "f16"}};
constexpr FactorType kBfloats[] = {{DType::kBfloat16, "bf16"}};
constexpr FactorType kBytes[] = {{DType::kInt8, "s8"}, {DType::kUint8, "u8"}};

// 3xTF32: a product of 16x8x8 is 32 multiply-adds of each lane, done by three instructions of 6.2 cycles, as many to
// split operands, and a quarter of the loads (the shares are fitted to trials on an H200). float16 and bfloat16, not
// fitted: 64 multiply-adds of each lane in one instruction, and half of those loads. Integers of 8 bits, not fitted:
// half of each. One product of TF32, not fitted: a third of three, and half of their splitting; by warpgroups twice
// what it is for float16, and the same third.
constexpr TensorIntrinsic kIntrinsics[] = {
    {TensorMode::kThreeTf32, false, true, kTf32, DType::kFloat32, 80, 0.58, 0.3, 0.25},
    {TensorMode::kGroupThreeTf32, true, true, kTf32, DType::kFloat32, 90, 0.4, 0.03, 0.25, 0.047},
    {TensorMode::kHalf, false, false, kHalves, DType::kFloat32, 80, 0.1, 0.03, 0.125},
    {TensorMode::kGroupHalf, true, false, kHalves, DType::kFloat32, 90, 0.065, 0.005, 0.125, 0.008},
    {TensorMode::kBfloat16, false, false, kBfloats, DType::kFloat32, 80, 0.1, 0.03, 0.125},
    {TensorMode::kGroupBfloat16, true, false, kBfloats, DType::kFloat32, 90, 0.065, 0.005, 0.125, 0.008},
    {TensorMode::kByte, false, false, kBytes, DType::kInt32, 80, 0.05, 0.015, 0.0625},
    {TensorMode::kGroupByte, true, false, kBytes, DType::kInt32, 90, 0.033, 0.0025, 0.0625, 0.004},
    {TensorMode::kTf32, false, false, kTf32, DType::kFloat32, 80, 0.2, 0.12, 0.25},
    {TensorMode::kGroupTf32, true, false, kTf32, DType::kFloat32, 90, 0.13, 0.01, 0.25, 0.016},
};

}  // namespace

absl::Span<const TensorIntrinsic> TensorIntrinsics() { return kIntrinsics; }

const FactorType* TensorIntrinsic::FindFactor(DType dtype) const {
  for (const FactorType& type : factors)
    if (type.dtype == dtype) return &type;
  return nullptr;
}

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
