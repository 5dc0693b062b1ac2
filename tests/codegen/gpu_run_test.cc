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
    // Sums in float, where the reference rounds each to the narrow type.
    const DType dtype = kernel.params[0].dtype;
    const double tolerance = dtype == DType::kFloat16 ? 2e-3 : dtype == DType::kBfloat16 ? 1.6e-2 : 1e-5;
    ExpectDeviceRunsAsReference(**device, target, kernel, tolerance);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GpuRun, ::testing::Values("opencl", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace diapason
