// What the OpenCL printer prints, run by whatever OpenCL device there is (PoCL in CI).
#include "gtest/gtest.h"
#include "tests/codegen/device_runs.h"
#include "tests/codegen/gpu_kernels.h"

namespace diapason {
namespace {

using namespace diapason::testing;

TEST(OpenClRun, EveryGpuKernelGivesWhatTheReferenceGives) {
  Target target;
  target.kind = TargetKind::kOpenCl;
  absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(target);
  if (absl::IsUnavailable(device.status())) GTEST_SKIP() << device.status();
  ASSERT_TRUE(device.ok()) << device.status();
  for (const KernelFunc& kernel : AllGpuKernels()) {
    ExpectDeviceRunsAsReference(**device, target, kernel, 2e-3 * (kernel.params[0].dtype == DType::kFloat16) + 1e-5);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace diapason
