// The main functions of the processes that an agent starts: the same program, by a hidden subcommand, with a socket to
// the agent as file descriptor kChildSocket (3).
//
// They work until the socket ends and return the exit status. Both first give up what they do not need
// (PrepareChildProcess) and are killed when the agent dies.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/target.h"
#include "worker/process/in_place.h"

namespace diapason {

class Toolchain;

// How a runner gets its device; OpenDevice of compiler/runtime, or a fake.
using DeviceOpener = std::function<absl::StatusOr<std::unique_ptr<Device>>(const Target&)>;

// Builds programs, one at a time.
int BuilderMain(int fd, Toolchain& toolchain);
// With the compiler's toolchain: `diapason internal-builder --fd 3`.
int BuilderMain(int fd);

// Measures programs on the device of `target`, one at a time; says the device's facts first, or why there is none.
// `compile` as for CandidateRunner (worker/process/candidate.h).
int RunnerMain(int fd, const Target& target, const DeviceOpener& open, const SourceCompiler& compile = nullptr);
// With the devices of compiler/runtime and the compilers of compiler/codegen: `diapason internal-runner --fd 3 --target
// TEXT`.
int RunnerMain(int fd, const Target& target);

}  // namespace diapason
