#include "compiler/build/profile_package.h"

#include <memory>

#include "gtest/gtest.h"
#include "tests/build/testing.h"

namespace diapason {
namespace {

// A product that takes most of the time between two small ones; kernels of known work.
class ProfilePackageTest : public FolderTest, public ::testing::WithParamInterface<TargetKind> {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    NetworkMaker m;
    const int x = m.In("x", {32, 512});
    const int small = m.Op("relu", {x}, {}, "small");
    const int large = m.Op("matmul", {small, m.Const("w", {512, 256})}, {}, "large");
    const int last = m.Op("softmax", {large}, {}, "last");
    network_ = m.Out({last});
    const Target target = TestTarget(GetParam());
    if (!OpenDevice(target).ok()) GTEST_SKIP() << "no device for " << target.ToString();
    const absl::StatusOr<Partition> partition = PartitionNetwork(network_);
    ASSERT_TRUE(partition.ok()) << partition.status();
    PackageRequest request = ReferenceRequest(network_, *partition, target);
    for (size_t i = 0; i < request.tasks.size(); ++i)
      request.tasks[i].work.resize(request.tasks[i].program.kernels.size(),
                                   {partition->tasks[i].dag.flops(), 1000, TensorMode::kNone});
    ASSERT_TRUE(BuildPackage(Path("p"), request).ok());
    absl::StatusOr<std::unique_ptr<PackageRunner>> runner = PackageRunner::Load(Path("p"));
    ASSERT_TRUE(runner.ok()) << runner.status();
    runner_ = *std::move(runner);
    const PackageManifest& manifest = runner_->manifest();
    ASSERT_TRUE(runner_->SetInputs(RandomInputs(manifest, manifest.sizes, 1)).ok());
  }
  void TearDown() override {
    runner_.reset();
    FolderTest::TearDown();
  }

  static ProfileOptions Short() {
    ProfileOptions options;
    options.warm_up_seconds = 0.01;
    options.seconds = 0.1;
    return options;
  }

  Network network_;
  std::unique_ptr<PackageRunner> runner_;
};

TEST_P(ProfilePackageTest, TimesEveryKernelInOrderAndAddsUpToTheLatency) {
  const absl::StatusOr<PackageProfile> profile = ProfilePackage(*runner_, Short());
  ASSERT_TRUE(profile.ok()) << profile.status();
  size_t kernels = 0;
  for (size_t s = 0; s < runner_->manifest().steps.size(); ++s) kernels += runner_->KernelsOf(static_cast<int>(s));
  ASSERT_EQ(profile->kernels.size(), kernels);
  ASSERT_GE(kernels, 2u);
  size_t slowest = 0;
  for (size_t i = 0; i < kernels; ++i) {
    EXPECT_GT(profile->kernels[i].seconds, 0) << i;
    if (i > 0) {
      EXPECT_GE(profile->kernels[i].step, profile->kernels[i - 1].step);
    }
    if (profile->kernels[i].seconds > profile->kernels[slowest].seconds) slowest = i;
  }
  // GPUs take longer for the softmax, with a schedule that nobody tuned.
  const std::string& name = runner_->manifest().tasks[profile->kernels[slowest].task].name;
  if (GetParam() == TargetKind::kCpu) {
    EXPECT_NE(name.find("matmul"), std::string::npos) << name;
  }
  EXPECT_GE(profile->runs, 10);
  // OpenCL tells no peaks.
  EXPECT_EQ(profile->flops.has_value(), GetParam() != TargetKind::kOpenCl);
  EXPECT_EQ(profile->kernels[0].roofline.has_value(), GetParam() != TargetKind::kOpenCl);
  EXPECT_GT(profile->latency_seconds, 0);
  EXPECT_NEAR(profile->kernels_seconds() + profile->disturbed_seconds() + profile->between_seconds(),
              profile->latency_seconds, 1e-12);
  // Kernels this long are most of it; the bound is wide, since others use the machine as well.
  EXPECT_GT(profile->run_seconds, 0.1 * profile->latency_seconds);
  EXPECT_LT(profile->run_seconds, 10 * profile->latency_seconds);
  const PackageManifest& manifest = runner_->manifest();
  const std::vector<Array> want = Expected(network_, RandomInputs(manifest, manifest.sizes, 1));
  const std::vector<Array> outputs = runner_->Outputs().value();
  for (int64_t e = 0; e < want[0].elements(); ++e) ASSERT_NEAR(outputs[0].at(e), want[0].at(e), 1e-4) << e;
}

TEST_P(ProfilePackageTest, TheRooflineIsTheLargerOfArithmeticAndMemory) {
  ProfileOptions options = Short();
  options.flops = 1e9;
  options.bandwidth = 1e12;  // 1000 bytes take a nanosecond
  const absl::StatusOr<PackageProfile> profile = ProfilePackage(*runner_, options);
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (const ProfiledKernel& kernel : profile->kernels) {
    ASSERT_TRUE(kernel.work.has_value() && kernel.roofline.has_value());
    EXPECT_TRUE(kernel.roofline->compute);
    EXPECT_DOUBLE_EQ(kernel.roofline->seconds, kernel.work->flops / 1e9);
  }
  options.bandwidth = 1;
  const absl::StatusOr<PackageProfile> slow = ProfilePackage(*runner_, options);
  ASSERT_TRUE(slow.ok()) << slow.status();
  for (const ProfiledKernel& kernel : slow->kernels) {
    EXPECT_FALSE(kernel.roofline->compute);
    EXPECT_DOUBLE_EQ(kernel.roofline->seconds, 1000);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ProfilePackageTest,
                         ::testing::Values(TargetKind::kCpu, TargetKind::kOpenCl, TargetKind::kCuda),
                         [](const auto& info) {
                           return std::string(info.param == TargetKind::kCpu      ? "cpu"
                                              : info.param == TargetKind::kOpenCl ? "opencl"
                                                                                  : "cuda");
                         });

}  // namespace
}  // namespace diapason
