// Matrix products on tensor cores, as data. Rules ask it what fits a product, lowering for its depth and the types of
// its factors, the metrics for its rates; what an instruction looks like is up to the printers. A new instruction is a
// row of the table and its text there.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "compiler/tensor/dtype.h"

namespace diapason {

// Threads of a warp, and of a warpgroup of four.
inline constexpr int64_t kLanesOfWarp = 32, kLanesOfGroup = 4 * kLanesOfWarp;

// How products are made on tensor cores. The numbers are stored in records: never renumber, never change what one
// means.
enum class TensorMode : uint8_t {
  kNone = 0,
  // float32 from three products of TensorFloat-32 parts: each operand is the sum of two of them, the product of the two
  // small ones is left out (3xTF32).
  kThreeTf32 = 1,
  // The same by warpgroups of four warps (wgmma): n runs along a shared copy in core matrices (kCoreMatrices), which
  // the four have in common; m comes from registers.
  kGroupThreeTf32 = 2,
  // float16 factors, float32 sums.
  kHalf = 3,
  // The same by warpgroups, as kGroupThreeTf32.
  kGroupHalf = 4,
  // The two with bfloat16 factors.
  kBfloat16 = 5,
  kGroupBfloat16 = 6,
  // int8 and uint8 factors, int32 sums.
  kByte = 7,
  kGroupByte = 8,
  // One product of factors that are rounded to TensorFloat-32 (10 bits of fraction).
  kTf32 = 9,
  // The same by warpgroups, as kGroupThreeTf32. These products cut factors off instead of rounding them: what they read
  // has been rounded before.
  kGroupTf32 = 10,
};

// What the factors of an instruction may be, each for itself.
struct FactorType {
  DType dtype;
  const char* ptx;  // its name in PTX
};

// A product over depth() elements of k. Lane 4 * g + q of a warp holds words q and q + 4 (of 4 bytes, along k) of rows
// g and g + 8 of one operand and of column g of the other, and the sums of rows g and g + 8 and columns 2q and 2q + 1
// (PTX, "Matrix fragments for mma.m16n8k8", "m16n8k16" and "m16n8k32"): in bytes the layout is the same for all types.
struct TensorIntrinsic {
  TensorMode mode;
  bool groups;                           // by a warpgroup (wgmma), 64 rows; else by a warp (mma.sync), 16 rows
  bool parts;                            // three products of the high and the low part of each factor
  absl::Span<const FactorType> factors;  // all of one size
  DType sum;
  int first_arch;  // of NVIDIA's, as in sm_80
  // For the analytic estimate, relative to the same multiply-adds in float32: time, issue slots, loads of operands.
  double fma, issue, loads;
  // Warpgroups: wavefronts of shared memory for the columns, per multiply-add.
  double shared = 0;

  int factor_bytes() const { return BytesOf(factors[0].dtype); }
  // Null if no factor has the type.
  const FactorType* FindFactor(DType dtype) const;
  // Elements of k in one product.
  int64_t depth() const { return 32 / factor_bytes(); }
  // Elements in one row of a core matrix (8 rows of 16 bytes), the unit that ldmatrix and wgmma read from shared
  // memory.
  int64_t row() const { return depth() / 2; }
  int64_t factors_per_register() const { return 4 / factor_bytes(); }
  // Element type of buffers that hold factors in registers: narrow factors are packed into 32-bit words.
  DType register_type() const { return factors_per_register() == 1 ? factors[0].dtype : DType::kInt32; }
  // Whether the product is less precise than factors of their type: float32 rounded to TensorFloat-32.
  bool rounds_factors() const { return !parts && factors[0].dtype == DType::kFloat32; }
  // Whether operands in shared memory may have rows or columns innermost in place of k: ldmatrix transposes elements of
  // 16 bits, and so does wgmma.
  bool transposes() const { return factors_per_register() == 2; }
  // Most columns of one product of a warpgroup.
  static constexpr int64_t kMostColumns = 256;
  // Whether one product of a warpgroup can have so many columns, a multiple of 8: with integers few odd multiples are
  // allowed (PTX, "wgmma.mma_async": shapes).
  bool HasColumns(int64_t columns) const {
    return columns <= kMostColumns && (IsFloat(sum) || columns <= 32 || columns % 16 == 0);
  }
};

absl::Span<const TensorIntrinsic> TensorIntrinsics();
// Null for a number that is none, and for kNone.
const TensorIntrinsic* FindTensorIntrinsic(int mode);
// REQUIRES: mode != kNone.
const TensorIntrinsic& TensorIntrinsicOf(TensorMode mode);

}  // namespace diapason
