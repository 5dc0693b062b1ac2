// The opencl device: kernels are OpenCL C source, compiled by the driver when they are loaded.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"

namespace diapason {

// Opens device number target.device of this machine, GPUs counted before CPUs (PoCL). Unavailable where there is none.
// REQUIRES: target.kind is kOpenCl.
absl::StatusOr<std::unique_ptr<Device>> OpenOpenClDevice(const Target& target);
// Facts of the same device, without a context on it.
absl::StatusOr<DeviceFacts> OpenClFacts(const Target& target);
// How many devices there are; 0 without a driver.
int CountOpenClDevices();

}  // namespace diapason
