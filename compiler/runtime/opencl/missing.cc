// Stands in for device.cc in a build without OpenCL headers.
#include "absl/status/status.h"
#include "compiler/runtime/opencl/device.h"

namespace diapason {
namespace {

absl::Status Missing() {
  return absl::UnavailableError(
      "target 'opencl' is not part of this build, which had no CL/cl.h; install the OpenCL headers (Debian: "
      "opencl-c-headers) and build again, or choose target 'cpu'");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenOpenClDevice(const Target&) { return Missing(); }
absl::StatusOr<DeviceFacts> OpenClFacts(const Target&) { return Missing(); }
int CountOpenClDevices() { return 0; }

}  // namespace diapason
