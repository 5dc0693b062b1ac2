// Runs a task's program once with given inputs.
#pragma once

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "compiler/runtime/executable.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Loads the program with the contents of its placeholders, by stage. Placeholders that it does not read are ignored.
absl::StatusOr<std::unique_ptr<Executable>> Prepare(Device& device, const Program& program,
                                                    const std::map<int, Array>& inputs);
// Runs the program and reads the dag's first output.
absl::StatusOr<Array> RunForOutput(Device& device, Executable& executable, const ComputeDag& dag);

}  // namespace diapason
