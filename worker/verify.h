// Whether the outputs of a candidate are those of the naive evaluation, and the inputs on which this is decided.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Random contents of a placeholder, equal for equal (dag, stage, seed) on every machine. Floats lie in [-1, 1); where
// the dag takes roots, logarithms, powers or quotients they lie in [0.5, 1), which is inside the domain of each.
// Integers lie in the stage's valid range.
Array RandomInput(const ComputeDag& dag, int stage, uint64_t seed);

// Error that is allowed, relative to the largest absolute value of the reference output. Rounding errors of a sum grow
// like the square root of its length K, so beyond 1024 terms the base grows by sqrt(K / 1024), K being the longest
// reduction of the dag. The base is that of the dag's least precise type of float: 1e-4 for float32 (room for Winograd
// F(4,3), whose transforms lose two digits), 1e-2 for float16, 1e-9 for float64. Integers and booleans have to be
// equal: 0.
double RelativeTolerance(const ComputeDag& dag, int output);

struct Comparison {
  bool ok = true;
  double max_abs_error = 0;  // infinity where one of the two is no finite number and the other differs
  double max_rel_error = 0;  // over the largest absolute value of the same output's reference
  double tolerance = 0;      // of the output with the largest error
  std::string text;          // the first worst element, when not ok
};

// Compares the outputs of a dag, in order. An element that is no finite number must be the same kind of no number in
// both. REQUIRES: shapes and types are those of the dag's outputs.
Comparison CompareOutputs(const ComputeDag& dag, const std::vector<Array>& got, const std::vector<Array>& reference);

// The first element that still has the poison (0xff in every byte) with which outputs were filled; -1 if there is none.
// Types in which poison is an ordinary value (integers, booleans) give -1.
int64_t FirstUnwritten(const Array& output);
// The first element that is NaN or infinite; -1 if there is none.
int64_t FirstNonFinite(const Array& output);

}  // namespace diapason
