// Stands in for device.cc in a build without CUDA headers.
#include "absl/status/status.h"
#include "compiler/runtime/cuda/device.h"

namespace diapason {
namespace {

absl::Status Missing() {
  return absl::UnavailableError(
      "target 'cuda' is not part of this build, which had no cuda.h; install the CUDA headers and build again, or "
      "choose "
      "target 'cpu' or 'opencl'");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const Target&) { return Missing(); }
absl::StatusOr<DeviceFacts> CudaFacts(const Target&) { return Missing(); }
int CountCudaDevices() { return 0; }

}  // namespace diapason
