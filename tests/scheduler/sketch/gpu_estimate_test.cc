#include "scheduler/sketch/gpu_estimate.h"

#include <gtest/gtest.h>

#include <functional>

#include "scheduler/sketch/feature_names.h"

namespace diapason {
namespace {

// The estimate of a kernel of one element-wise stage, y[1024] = x[1024] + 1, after a change of its work or resources.
class GpuEstimateTest : public testing::Test {
 protected:
  static constexpr int kY = 1;
  GpuEstimateTest() : state_(Dag()) {
    Skeleton(state_).Infer({}, &bounds_);
    kernel_ = {.root = kY, .blocks = 1024, .threads = 256};
    work_.executions = 1 << 18;
    work_.operations = 1;
    work_.bytes = work_.unique_bytes = 1 << 20;
  }
  static ComputeDag Dag() {
    DagBuilder b;
    const int x = b.Placeholder("x", {1024});
    const int y = b.Compute("y", {1024}, [&](const auto& i) { return Add(b.At(x, i), FloatImm(1)); });
    return b.Build({y}).value();
  }
  double Seconds(const std::function<void()>& change = [] {}) {
    const KernelResources kernel = kernel_;
    const WorkOfStage work = work_;
    change();
    GpuEstimate estimate(state_, TargetKind::kCuda, facts_, kernel_);
    estimate.Add({.id = kY, .share = 1, .held = false}, bounds_.stages[kY], work_);
    const double seconds = estimate.Seconds(features_);
    kernel_ = kernel;
    work_ = work;
    return seconds;
  }

  const DeviceFacts facts_ = DefaultFacts(Target::Parse("cuda -arch=sm_90").value());
  State state_;
  Bounds bounds_;
  KernelResources kernel_;
  WorkOfStage work_;
  float features_[kKernelFeatures] = {};
};

TEST_F(GpuEstimateTest, MoreWorkTakesLongerAndEachKernelALaunch) {
  const double plain = Seconds();
  EXPECT_GT(plain, facts_.launch_seconds);
  EXPECT_GT(Seconds([&] { work_.executions *= 100; }), plain);
  EXPECT_GT(Seconds([&] { work_.bytes = work_.unique_bytes = 1 << 28; }), plain);
  EXPECT_GT(Seconds([&] { kernel_.cluster = 8; }), plain);
}

TEST_F(GpuEstimateTest, MemoryBoundKernelsTakeTheTimeOfTheirBytes) {
  const double bytes = double{1 << 30};
  const double seconds = Seconds([&] { work_.bytes = work_.unique_bytes = bytes; });
  EXPECT_NEAR(seconds, facts_.launch_seconds + bytes / facts_.bandwidth, 0.01 * seconds);
}

TEST_F(GpuEstimateTest, FeaturesAreThoseOfTheKernel) {
  Seconds();
  const float* const features = features_;
  EXPECT_FLOAT_EQ(features[0], static_cast<float>(Log2(1024)));  // blocks
  EXPECT_FLOAT_EQ(features[1], static_cast<float>(Log2(256)));   // threads
  EXPECT_FLOAT_EQ(features[4], 8);                               // blocks of 256 threads that are resident
  Seconds([&] { kernel_.shared_bytes = facts_.shared_bytes_per_core / 2 - 1024; });
  EXPECT_FLOAT_EQ(features[4], 2);
}

}  // namespace
}  // namespace diapason
