#include "compiler/runtime/device.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Reverses each work-group's piece through local memory: wrong without the barrier.
constexpr char kReverse[] = R"(
__kernel void reverse(__global const float* x, __global float* y) {
  __local float tile[64];
  const int t = get_local_id(0), n = get_local_size(0), base = get_group_id(0) * n;
  tile[t] = x[base + t];
  barrier(CLK_LOCAL_MEM_FENCE);
  y[base + t] = tile[n - 1 - t];
}
__kernel void grid3(__global float* out) {
  const int i = get_global_id(0) + get_global_size(0) * (get_global_id(1) + get_global_size(1) * get_global_id(2));
  out[i] = get_group_id(2) * 100 + get_group_id(1) * 10 + get_local_id(0);
}
__kernel void twice(__global float* x) { x[get_global_id(0)] *= 2; }
)";

Program ClProgramOf(const std::string& source) {
  Program program;
  program.target.kind = TargetKind::kOpenCl;
  program.source = program.binary = source;
  return program;
}

class OpenClDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Target target;
    target.kind = TargetKind::kOpenCl;
    absl::StatusOr<std::unique_ptr<Device>> opened = OpenDevice(target);
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    device_ = *std::move(opened);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(OpenClDeviceTest, FactsComeFromTheDevice) {
  EXPECT_NE(device_->facts().model, "");
  EXPECT_THAT(device_->facts().driver, HasSubstr("OpenCL"));
  EXPECT_GE(device_->facts().num_cores, 1);
  EXPECT_GE(device_->facts().max_threads_per_block, 64);
  EXPECT_GT(device_->facts().max_shared_bytes, 1024);
}

TEST_F(OpenClDeviceTest, CopiesBetweenBuffers) {
  auto from = device_->Allocate(16).value(), to = device_->Allocate(16).value();
  WriteFloats(*device_, *from, {1, 2, 3, 4});
  WriteFloats(*device_, *to, {0, 0, 0, 0});
  ASSERT_TRUE(device_->Copy(*to, *from, 12).ok());
  EXPECT_THAT(ReadFloats(*device_, *to, 4), ElementsAre(1, 2, 3, 0));
}

TEST_F(OpenClDeviceTest, BarriersAndLocalMemoryWork) {
  auto module = device_->Load(ClProgramOf(kReverse)).value();
  constexpr int kBlock = 64, kBlocks = 5;
  std::vector<float> values(kBlock * kBlocks);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  auto x = device_->Allocate(values.size() * 4).value(), y = device_->Allocate(values.size() * 4).value();
  WriteFloats(*device_, *x, values);
  auto plan =
      device_->MakePlan({{module.get(), KernelOf("reverse", {0, 1}, kBlocks, kBlock), {x.get(), y.get()}}}).value();
  ASSERT_TRUE(plan->Run().ok());
  const std::vector<float> got = ReadFloats(*device_, *y, kBlock * kBlocks);
  for (int b = 0; b < kBlocks; ++b)
    for (int t = 0; t < kBlock; ++t) ASSERT_EQ(got[b * kBlock + t], b * kBlock + kBlock - 1 - t);
}

TEST_F(OpenClDeviceTest, GridIsBlocksInThreeDimensions) {
  auto module = device_->Load(ClProgramOf(kReverse)).value();
  auto out = device_->Allocate(2 * 2 * 3 * 4).value();
  Kernel kernel = KernelOf("grid3", {0}, 1, 2);
  kernel.grid = {1, 2, 3};
  auto plan = device_->MakePlan({{module.get(), kernel, {out.get()}}}).value();
  ASSERT_TRUE(plan->Run().ok());
  EXPECT_THAT(ReadFloats(*device_, *out, 12), ElementsAre(0, 1, 10, 11, 100, 101, 110, 111, 200, 201, 210, 211));
}

TEST_F(OpenClDeviceTest, LaunchesSeeEachOthersWritesAndTimeCountsThem) {
  auto module = device_->Load(ClProgramOf(kReverse)).value();
  auto x = device_->Allocate(16).value();
  WriteFloats(*device_, *x, {1, 1, 1, 1});
  const Launch launch{module.get(), KernelOf("twice", {0}, 2, 2), {x.get()}};
  auto plan = device_->MakePlan({launch, launch, launch}).value();
  const absl::StatusOr<double> seconds = plan->Time(4);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0);
  EXPECT_THAT(ReadFloats(*device_, *x, 4), Each(4096.0f));
}

TEST_F(OpenClDeviceTest, ViewsShareTheMemory) {
  auto module = device_->Load(ClProgramOf(kReverse)).value();
  auto arena = device_->Allocate(4096).value();
  ASSERT_TRUE(device_->Fill(*arena, 0).ok());
  auto view = device_->View(*arena, 1024, 16).value();
  WriteFloats(*device_, *view, {1, 2, 3, 4});
  auto plan = device_->MakePlan({{module.get(), KernelOf("twice", {0}, 2, 2), {view.get()}}}).value();
  ASSERT_TRUE(plan->Run().ok());
  const std::vector<float> all = ReadFloats(*device_, *arena, 1024);
  EXPECT_EQ(all[255], 0);
  EXPECT_EQ(all[256], 2);
  EXPECT_EQ(all[259], 8);
  EXPECT_EQ(all[260], 0);
}

TEST_F(OpenClDeviceTest, TellsWhatIsWrong) {
  const absl::Status source = device_->Load(ClProgramOf("__kernel void broken( {")).status();
  EXPECT_EQ(source.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(source.message(), HasSubstr("the OpenCL source does not compile (CL_BUILD_PROGRAM_FAILURE): "));
  EXPECT_THAT(source.message(), HasSubstr("error"));

  auto module = device_->Load(ClProgramOf(kReverse)).value();
  const absl::Status kernel = device_->MakePlan({{module.get(), KernelOf("other", {}, 1), {}}}).status();
  EXPECT_EQ(kernel.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(kernel.message(), "the program has no kernel 'other'");

  auto x = device_->Allocate(16).value();
  auto plan = device_->MakePlan({{module.get(), KernelOf("twice", {0}, 1, 1 << 20), {x.get()}}}).value();
  const absl::Status run = plan->Run();
  EXPECT_EQ(run.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(run.message(), HasSubstr("launching kernel 'twice': CL_INVALID_WORK_"));

  EXPECT_EQ(device_->Allocate(int64_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(device_->Load(Program{}).status().message(),
            "a program for target 'cpu' cannot be loaded on an opencl device");
}

TEST_F(OpenClDeviceTest, OtherDeviceNumbersAreRefusedWithTheirRange) {
  Target target;
  target.kind = TargetKind::kOpenCl;
  target.device = 99;
  const absl::Status status = OpenDevice(target).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("target 'opencl -device=99': there"));
}

}  // namespace
}  // namespace diapason
