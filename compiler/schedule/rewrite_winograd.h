// The Winograd rewrite (compiler/schedule/rewrite.h): F(m x m, 3 x 3) after Lavin and Gray, "Fast Algorithms for
// Convolutional Neural Networks" (2016). Each m x m tile of the output costs (m+2)^2 products a pair of channels
// instead of 9 m^2.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// The dag's stages become, for an output of [n, h, w, co] cut into p = n * ceil(h/m) * ceil(w/m) tiles and t = (m+2)^2:
//   weights U[t, ci, co]           prologue; U[t, co, ci] with `k_innermost`
//   tiles   D[p, m+2, m+2, ci]     the input under each tile, the padding inlined
//   input   V[t, p, ci]
//   product C[t, p, co] = sum over ci of V * U
//   inverse Y[n, h/m, m, w/m, m, co]
// followed by the epilogue, over Y's shape where m divides h and w (the same memory), else over the original one.
//
// InvalidArgument, saying why, unless the dag is one dense 3x3 convolution of stride and dilation 1 in float32, NHWC,
// with constant weights, followed by element-wise stages, and m is 2 or 4.
absl::StatusOr<ComputeDag> WinogradRewrite(const ComputeDag& dag, int64_t m, bool k_innermost = false);

}  // namespace diapason
