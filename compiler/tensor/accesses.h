// Whether a program from elsewhere reads only what is there.
#pragma once

#include "absl/status/status.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Proves of every load of every stage that its indices stay within the tensor that it reads, for all points of the
// stage's loops, under the conditions of the selects around it, and for all values of integer placeholders that
// verification draws (DrawnIntegers in compare.h): by intervals, by a condition that says so, or else by trying all
// values of the loops that an index depends on, if these are not too many. InvalidArgument names the first load that is
// not proven. Code is generated from expressions as they are, so nothing of a peer's is compiled and run without it.
absl::Status CheckAccesses(const ComputeDag& dag);

}  // namespace diapason
