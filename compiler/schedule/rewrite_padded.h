// The padded rewrite (compiler/schedule/rewrite.h): a vector times a matrix whose rows are no whole vectors of memory.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// C[.., c] = sum over k of X[.., k] * W[.., k, c] with one row of results and constant W, whose last dimension is c,
// becomes the same with W'[.., k, c], which has columns of zeros behind those of W up to a multiple of 16 bytes. Rows
// of W' are then all aligned, and a copy of some of their elements may read whole vectors (the 50,257 words of a
// decoder). All other stages stay as they are.
//
// InvalidArgument, saying why, where the dag has another form, or rows of W are aligned.
absl::StatusOr<ComputeDag> PaddedRewrite(const ComputeDag& dag);

}  // namespace diapason
