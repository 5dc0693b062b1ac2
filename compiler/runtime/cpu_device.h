// The cpu device: kernels are functions of a shared object, run by a pool of threads.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"

namespace diapason {

// Facts of this machine as the target uses it (its number of threads), without starting any.
DeviceFacts CpuFacts(const Target& target);
// InvalidArgument for a negative number of cores. REQUIRES: target.kind is kCpu.
absl::StatusOr<std::unique_ptr<Device>> OpenCpuDevice(const Target& target);

}  // namespace diapason
