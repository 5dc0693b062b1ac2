// A program run to its end, or to a deadline, and what it said.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

struct ProgramOptions {
  std::vector<std::string> args;           // args[0] is looked for in PATH
  std::vector<std::string> environment{};  // "NAME=value" (base/environment.h)
  std::string input{};                     // on its stdin
  double timeout_seconds = 60;
  size_t max_output_bytes = size_t{1} << 20;  // kept of its stdout, and of its stderr; the rest is dropped
  bool one_output = false;                    // stdout and stderr as they come, in `output`
};

struct ProgramResult {
  int exit_code = 0;  // of an exit; 128 + signal where a signal ended it
  bool signalled = false;
  std::string output, errors;
};

// Waits until it ends, or kills it at the deadline, in both cases with whatever it started and left in its process
// group. Errors: those of Spawn (base/process.h), DeadlineExceeded. Safe from any thread.
absl::StatusOr<ProgramResult> RunProgram(const ProgramOptions& options);

}  // namespace diapason
