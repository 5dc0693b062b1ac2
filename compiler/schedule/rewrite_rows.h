// The rows rewrite (compiler/schedule/rewrite.h): convolutions of few channels, where in NHWC a row of the window is
// one run of memory.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// A convolution of [n, h, w, ci] by a window of kh x kw, stride sw along w, becomes
//   C[n, y, x, co] = sum over r < kh, j < J of X'[n, sh*y + r, sw*ci*x + first + j] * W'[r, j, co]
// X' is the input with rows of w*ci elements, as a stage of its own where it is padded: in front by so much more than
// the convolution asks for that an element of the input and its copy are at the same place modulo 4, so that whole
// vectors of 4 are inside or outside. W' is the weights, J = kw*ci. Stages behind the convolution stay as they are.
//
// InvalidArgument, saying why, unless the dag has one reduction, a dense convolution in float32 and NHWC of 1 to 7
// channels, not 4, without dilation along w, whose window is wider than 1.
absl::StatusOr<ComputeDag> RowsRewrite(const ComputeDag& dag);

}  // namespace diapason
