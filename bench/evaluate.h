// Running a task's program once with contents of its inputs that are given.
#pragma once

#include <map>
#include <memory>

#include "absl/status/statusor.h"
#include "compiler/runtime/executable.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

// Ready to run, with these contents of placeholders, by stage; what the program does not read is left out.
absl::StatusOr<std::unique_ptr<Executable>> Prepare(Device& device, const Program& program,
                                                    const std::map<int, Array>& inputs);
// Runs it, and reads the dag's first output.
absl::StatusOr<Array> RunForOutput(Device& device, Executable& executable, const ComputeDag& dag);

}  // namespace diapason
