// What the GPU printer prints, run by the OpenCL device there is (PoCL in CI), and on an NVIDIA GPU where there is one.
#include "gtest/gtest.h"
#include "tests/codegen/device_runs.h"
#include "tests/codegen/gpu_kernels.h"

namespace diapason {
namespace {

using namespace diapason::testing;

class GpuRun : public ::testing::TestWithParam<const char*> {};

TEST_P(GpuRun, EveryKernelGivesWhatTheReferenceGives) {
  Target target = Target::Parse(GetParam()).value();
  absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice(target);
  if (absl::IsUnavailable(device.status())) GTEST_SKIP() << device.status();
  ASSERT_TRUE(device.ok()) << device.status();
  if (target.kind == TargetKind::kCuda) target.arch = (*device)->facts().arch;
  std::vector<KernelFunc> kernels = AllGpuKernels();
  if (target.kind == TargetKind::kCuda) {
    for (const int64_t elements : {kMostStaticElements, kLeastDynamicElements, int64_t{16 * 1024}})
      kernels.push_back(ThroughShared(elements));  // static, and dynamic, which the device has to be told
  }
  for (const KernelFunc& kernel : kernels) {
    // sums in float, where the reference rounds each to half
    const bool half = kernel.params[0].dtype == DType::kFloat16;
    ExpectDeviceRunsAsReference(**device, target, kernel, half ? 2e-3 : 1e-5);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GpuRun, ::testing::Values("opencl", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace diapason
