// Lowered programs to source text and binaries.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "compiler/lower/stmt.h"
#include "compiler/tensor/program.h"

namespace diapason {

// Source of all kernels in the target's dialect: C with vector extensions, OpenCL C or CUDA C. Deterministic.
// Freestanding: CUDA source includes no headers (NVRTC compile time is what limits the rate of trials).
std::string PrintSource(const LoweredProgram& program, const Target& target);

// Compiles with the system's C compiler ($CC or cc), NVRTC (found with dlopen), or, for opencl, leaves the source to
// the runtime. Errors: Unavailable when there is no compiler (names it and how to get it), InvalidArgument with the
// compiler's first error lines when the source does not compile, DeadlineExceeded past `timeout_seconds` (cpu).
absl::StatusOr<Program> CompileProgram(const LoweredProgram& program, const Target& target,
                                       double timeout_seconds = 30);

}  // namespace diapason
