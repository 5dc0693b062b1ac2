// Whether the outputs of a candidate are those of the reference implementation, on inputs made by RandomInput
// (runtime/fill.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/runtime/fill.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

struct OutputComparison {
  bool ok = true;
  double max_abs_error = 0;  // infinity where one of the two is not finite and the other differs
  double max_rel_error = 0;  // of the output that comes closest to its tolerance, or exceeds it most; see Comparison
  double tolerance = 0;      // of that output
  std::string text;          // its worst element, when not ok
};

// Compares the outputs of a dag, in order, by the policy of compiler/tensor/compare.h. `tf32`: that of the target.
// REQUIRES: shapes and types are those of the dag's outputs.
OutputComparison CompareOutputs(const ComputeDag& dag, const std::vector<Array>& got,
                                const std::vector<Array>& reference, double tf32 = 0);

// The first element that still has the poison (0xff in every byte) with which outputs were filled; -1 if there is none.
// Types in which poison is an ordinary value (integers, booleans) give -1.
int64_t FirstUnwritten(const Array& output);
// The first element that is NaN or infinite; -1 if there is none.
int64_t FirstNonFinite(const Array& output);

}  // namespace diapason
