// Reductions of many elements as reductions of partial results, for two reasons.
//
// Precision: a loop that adds n numbers of float32 one by one rounds n times relative to all of the sum: the error
// grows with n, and from 2^24 equal terms on the sum stands still. Numbers that are added in parts of a few hundred,
// and these parts in parts again, have an error that grows with the logarithm of n.
//
// Speed: the parts are what cores, vectors and thread blocks take turns at, on every device. So largest and smallest
// elements are found in this way too, which changes no result.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// The dag with long reductions split into stages; the same dag if it has none. A reduction is long from 16,384 terms
// on: a sum of floats, or a maximum, minimum or product of any type. Those that belong to a row (normalizations:
// another stage reduces, or uses the result for each of its elements) and sums of products stay whole up to 2^20 terms:
// schedules share rows among lanes or threads, and products are tiled. Placeholders keep their order, outputs their
// number.
absl::StatusOr<ComputeDag> SplitLongReductions(const ComputeDag& dag);

}  // namespace diapason
