// Float32 products of bounded factors as float16 products (3xFP16).
//
// Each factor, times a power of two, is the sum of two float16 numbers: the nearest one and the rest, rounded to one.
// As many digits as float16 has twice, 22, remain of factors that are not far below their bound; of smaller ones the
// absolute error is 2^-39 of the bound. With such parts along k, low ones first, one product of float16 with float32
// sums computes
//   sum_k high(a) * low(b) + sum_k low(a) * high(b) + sum_k high(a) * high(b),
// which leaves the product of the low parts out, as 3xTF32 does, in half its time: tensor cores multiply float16 twice
// as fast as TensorFloat-32, and the parts of the columns that are read three times have half the bytes. (Markidis et
// al., "NVIDIA Tensor Core Programmability, Performance and Precision", 2018; Ootomo and Yokota, "Recovering Single
// Precision Accuracy from Tensor Cores While Surpassing the FP32 Theoretical Peak Performance", 2022.) float16 reaches
// to 65504 only: factors must be known to keep to a bound, which the range of their placeholders says.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Of the gemm rewrite's product (gemm_k's where the columns are constants): its operands as stages "x.halves" of
// float16, [b, m, 3 * K] and [b, 3 * K, n] (or [b, n, 3 * K]), K the reduction's extent, with zeros behind it, rounded
// up to whole products of tensor cores; then "scaled", the sum without the factors' powers of two. InvalidArgument
// where there is no gemm rewrite in float32, where sums have more than 4096 terms, where a factor has no bound, or
// where it is computed from more elements than are in memory (im2col).
absl::StatusOr<ComputeDag> HalvesRewrite(const ComputeDag& dag);

}  // namespace diapason
