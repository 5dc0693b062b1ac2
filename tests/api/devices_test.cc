// Devices of this host, by the public header.
#include "diapason/devices.h"

#include <gtest/gtest.h>

namespace diapason::api {
namespace {

TEST(Devices, TheProcessorIsFirst) {
  const std::vector<LocalDevice> devices = Devices();
  ASSERT_FALSE(devices.empty());
  const LocalDevice& processor = devices.front();
  EXPECT_EQ(processor.target.substr(0, 3), "cpu");
  EXPECT_FALSE(processor.is_gpu());
  EXPECT_GE(processor.cores, 1);
  EXPECT_GT(processor.flops_per_s, 0);
  EXPECT_EQ(processor.title.rfind(processor.model, 0), 0u) << processor.title;
  for (const LocalDevice& device : devices) {
    const absl::StatusOr<LocalDevice> found = FindDevice(device.target);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->model, device.model);
    EXPECT_EQ(found->title, device.title);
  }
}

TEST(Devices, TargetsAreNormalized) {
  const absl::StatusOr<std::string> target = NormalizeTarget("cuda  -libs=cudnn,cublas -arch=sm_90");
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_EQ(*target, "cuda -arch=sm_90 -libs=cublas,cudnn");
  EXPECT_EQ(NormalizeTarget("toaster").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Devices, TypesOfATargetBecomePartOfIt) {
  Model model;
  model.dtype = "mixed";
  model.tolerance = 0.01;
  std::string target = "cuda -arch=sm_90";
  ASSERT_TRUE(MoveTypeToTarget(model, target).ok());
  EXPECT_EQ(target, "cuda -arch=sm_90 -tf32=0.01");
  EXPECT_EQ(model.dtype, "float32");
  model.dtype = "tf32";
  target = "cpu";
  EXPECT_EQ(MoveTypeToTarget(model, target).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace diapason::api
