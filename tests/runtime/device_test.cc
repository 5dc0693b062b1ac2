#include "compiler/runtime/device.h"

#include <cstdlib>

#include "compiler/runtime/dynamic_library.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace diapason {
namespace {

TEST(Devices, CpuIsListedFirst) {
  const std::vector<DeviceListing> devices = ListDevices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0].target, "cpu");
  EXPECT_GE(devices[0].facts.num_cores, 1);
}

TEST(Devices, EveryListedTargetOpensWithTheSameFacts) {
  const std::vector<DeviceListing> devices = ListDevices();
  ASSERT_FALSE(devices.empty());
  for (const DeviceListing& listing : devices) {
    const absl::StatusOr<Target> target = Target::Parse(listing.target);
    ASSERT_TRUE(target.ok()) << target.status();
    const auto device = OpenDevice(*target);
    ASSERT_TRUE(device.ok()) << listing.target << ": " << device.status();
    EXPECT_EQ((*device)->facts().model, listing.facts.model);
    EXPECT_EQ((*device)->facts().num_cores, listing.facts.num_cores);
    EXPECT_EQ((*device)->kind(), target->kind);
  }
}

TEST(Devices, CudaWithoutDriverSaysWhatToDo) {
  if (DynamicLibrary::Open({"libcuda.so.1", "libcuda.so"}) != nullptr) GTEST_SKIP() << "this machine has the driver";
  Target target;
  target.kind = TargetKind::kCuda;
  const absl::Status status = OpenDevice(target).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::AnyOf(
          "target 'cuda' needs the NVIDIA driver, and its library libcuda.so.1 is not on this machine; install the "
          "driver, or choose target 'cpu' or 'opencl'",
          "target 'cuda' is not part of this build, which had no cuda.h; install the CUDA headers and build again, or "
          "choose target 'cpu' or 'opencl'"));
}

TEST(Devices, FactsOfAnAbsentDeviceAreTheDefaults) {
  Target target;
  target.kind = TargetKind::kCuda;
  target.arch = "sm_70";
  if (OpenDevice(target).ok()) GTEST_SKIP() << "this machine has an sm_70 GPU";
  const DeviceFacts facts = ResolveFacts(target), defaults = DefaultFacts(target);
  EXPECT_EQ(facts.model, defaults.model);
  EXPECT_EQ(facts.max_shared_bytes, defaults.max_shared_bytes);
}

TEST(DynamicLibrary, TriesTheNamesInOrder) {
  std::string why;
  EXPECT_EQ(DynamicLibrary::Open({"libno_such_library.so.1"}, &why), nullptr);
  EXPECT_NE(why.find("libno_such_library.so.1"), std::string::npos) << why;
  auto library = DynamicLibrary::Open({"libno_such_library.so.1", "libm.so.6"});
  ASSERT_NE(library, nullptr);
  double (*square_root)(double) = nullptr;
  ASSERT_TRUE(library->Find("sqrt", square_root));
  EXPECT_EQ(square_root(9), 3);
  EXPECT_EQ(library->Find("no_such_function"), nullptr);
}

}  // namespace
}  // namespace diapason
