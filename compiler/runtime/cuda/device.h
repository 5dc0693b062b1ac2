// The cuda device: NVIDIA GPUs through the driver API, opened at run time. A plan is a CUDA graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"

namespace diapason {

// Opens GPU number target.device with its primary context. Unavailable without a driver or a GPU, where the target's
// -arch is not the GPU's, or in a build without CUDA headers; the text says which and what to do.
// REQUIRES: target.kind is kCuda. A device may be used by one thread at a time, any.
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const Target& target);
// Facts of the same device, with no context made (a context takes 0.2 s and some hundred MiB).
absl::StatusOr<DeviceFacts> CudaFacts(const Target& target);
// How many GPUs there are; 0 without a driver.
int CountCudaDevices();

}  // namespace diapason
