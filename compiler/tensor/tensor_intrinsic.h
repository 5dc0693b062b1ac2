// Matrix products on tensor cores, as data. Rules ask it what fits a product, lowering for its depth and the types of its factors, the
// metrics for its rates; what an instruction looks like is up to the printers. A new instruction is a row of the table and its text there.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "compiler/tensor/dtype.h"

namespace diapason {

// How products are made on tensor cores. The numbers are stored in records: never renumber, never change what one means.
enum class TensorMode : uint8_t {
  kNone = 0,
  // float32 from three products of TensorFloat-32 parts: each operand is the sum of two of them, the product of the two
  // small ones is left out (3xTF32).
  kThreeTf32 = 1,
  // The same by warpgroups of four warps (wgmma): n runs along a shared copy in core matrices (kCoreMatrices), which the four have in
  // common; m comes from registers.
  kGroupThreeTf32 = 2,
  // float16 factors, float32 sums.
  kHalf = 3,
  // The same by warpgroups, as kGroupThreeTf32.
  kGroupHalf = 4,
};

// A product of m rows, 8 or more columns and `depth` elements of k, sums in float32. In registers, lane 4 * g + q of a warp holds of
// the rows g and g + 8 the elements of k that lie in words q and q + 4 of a run of 32 bytes, of column g the same, and the sums of
// rows g and g + 8 and columns 2q and 2q + 1 (PTX, "Matrix fragments for mma.m16n8k8" and "m16n8k16"). So what the types have in
// common is the number of bytes.
struct TensorIntrinsic {
  TensorMode mode;
  bool groups;       // by a warpgroup (wgmma), 64 rows; else by a warp (mma.sync), 16 rows
  bool parts;        // three products of the large and the small part of each factor
  DType factor;      // of both operands
  int first_arch;    // of NVIDIA's, as in sm_80
  // Of the time of float32 multiply-adds, of the issue slots of them, and of the loads of operands that they would need: for the
  // analytic estimate.
  double fma, issue, loads;
  // Of warpgroups, per multiply-add: wavefronts of shared memory that the columns take.
  double shared = 0;

  // Elements of k.
  int64_t depth() const { return 32 / BytesOf(factor); }
  // Of one row of a matrix of 8 rows, the unit in which ldmatrix and wgmma read shared memory.
  int64_t row() const { return depth() / 2; }
  int64_t factors_per_register() const { return 4 / BytesOf(factor); }
};

absl::Span<const TensorIntrinsic> TensorIntrinsics();
// Null for a number that is none, and for kNone.
const TensorIntrinsic* FindTensorIntrinsic(int mode);
// REQUIRES: mode != kNone.
const TensorIntrinsic& TensorIntrinsicOf(TensorMode mode);

}  // namespace diapason
