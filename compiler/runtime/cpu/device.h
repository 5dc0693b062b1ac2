// The cpu device: kernels are functions of a shared object, run by a pool of threads.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compiler/runtime/cuda/library_calls.h"
#include "compiler/runtime/device.h"

namespace diapason {

// Facts of this machine as the target uses it (its number of threads), without starting any.
DeviceFacts CpuFacts(const Target& target);
// InvalidArgument for a negative number of cores. REQUIRES: target.kind is kCpu. There are no libraries on the host:
// calls of them are refused, unless `libraries`, which works on host memory, is given (tests put one there).
absl::StatusOr<std::unique_ptr<Device>> OpenCpuDevice(const Target& target,
                                                      std::unique_ptr<LibraryCalls> libraries = nullptr);

}  // namespace diapason
