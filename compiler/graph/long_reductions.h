// Sums of many floats as sums of partial sums. A loop that adds n numbers of float32 one by one rounds n times relative
// to all of the sum: the error grows with n, and from 2^24 equal terms on the sum stands still. Numbers that are added
// in parts of a few hundred, and these parts in parts again, have an error that grows with the logarithm of n. The
// parts are also what cores, vectors and thread blocks take turns at, on every device.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// The dag with long sums split into stages; the same dag if it has none. A sum is long from 16,384 terms on. Sums that
// belong to a row (normalizations: another stage reduces, or uses the sum for each of its elements) and sums of
// products stay whole up to 2^20 terms: schedules share rows among lanes or threads, and products are tiled.
// Placeholders keep their order, outputs their number.
absl::StatusOr<ComputeDag> SplitLongReductions(const ComputeDag& dag);

}  // namespace diapason
