// Evaluates a ComputeDag by walking its expressions: the reference for small tensors (tests, constant folding). Slow;
// compiler/codegen/reference.h is the compiled reference for networks.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// inputs: stage id of each placeholder -> its values. Returns the arrays of the outputs, in order. Arithmetic on
// float16 and float32 is done in double and rounded to the stage's type when stored; integers are exact.
absl::StatusOr<std::vector<Array>> Interpret(const ComputeDag& dag, const std::map<int, const Array*>& inputs);
absl::StatusOr<std::vector<Array>> Interpret(const ComputeDag& dag, const std::map<int, Array>& inputs);

}  // namespace diapason
