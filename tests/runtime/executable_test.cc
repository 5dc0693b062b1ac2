#include "compiler/runtime/executable.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "compiler/runtime/fill.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr char kSource[] = R"(
void prepare(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[1])[i] = 10 * ((const float*)a[0])[i];
}
void first(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[2])[i] = ((const float*)a[0])[i] + ((const float*)a[1])[i];
}
void second(void* const* a, long begin, long end) {
  for (long i = begin; i < end; ++i) ((float*)a[1])[i] = 2 * ((const float*)a[0])[i];
}
)";

// out = 2 * (x + 10 * w), by way of a prepared buffer and a workspace.
Program TestProgram(int64_t n) {
  Program program = CProgram(kSource);
  program.buffers = {FloatBuffer("x", n, BufferRole::kInput, 0), FloatBuffer("w", n, BufferRole::kConstant, 1),
                     FloatBuffer("prepared", n, BufferRole::kPrepared), FloatBuffer("tmp", n, BufferRole::kWorkspace),
                     FloatBuffer("out", n, BufferRole::kOutput, 4)};
  program.prologue = {KernelOf("prepare", {1, 2}, n)};
  program.kernels = {KernelOf("first", {0, 2, 3}, n), KernelOf("second", {3, 4}, n)};
  return program;
}

std::unique_ptr<Device> OpenCpu() {
  Target target;
  target.num_cores = 2;
  return OpenDevice(target).value();
}

TEST(Executable, RunsPrologueAndKernels) {
  auto device = OpenCpu();
  auto executable = Executable::Create(*device, TestProgram(50)).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  WriteFloats(*device, *executable->buffer(0), std::vector<float>(50, 1));
  WriteFloats(*device, *executable->buffer(1), std::vector<float>(50, 3));
  ASSERT_TRUE(executable->RunPrologue().ok());
  ASSERT_TRUE(executable->MakePlan().value()->Run().ok());
  EXPECT_THAT(ReadFloats(*device, *executable->buffer(4), 50), Each(62.0f));
}

TEST(Executable, UsesBoundBuffersAndSharesAModule) {
  auto device = OpenCpu();
  auto one = Executable::Create(*device, TestProgram(8)).value();
  auto two = Executable::Create(*device, TestProgram(8), one->module()).value();
  EXPECT_EQ(one->module(), two->module());
  auto x = device->Allocate(32).value();
  WriteFloats(*device, *x, std::vector<float>(8, 5));
  one->Bind(0, x.get());
  two->Bind(0, x.get());
  for (auto* executable : {one.get(), two.get()}) {
    ASSERT_TRUE(executable->AllocateRest().ok());
    EXPECT_EQ(executable->buffer(0), x.get());
    WriteFloats(*device, *executable->buffer(1), std::vector<float>(8, executable == one.get() ? 1 : 2));
    ASSERT_TRUE(executable->RunPrologue().ok());
    ASSERT_TRUE(executable->MakePlan().value()->Run().ok());
  }
  EXPECT_THAT(ReadFloats(*device, *one->buffer(4), 8), Each(30.0f));
  EXPECT_THAT(ReadFloats(*device, *two->buffer(4), 8), Each(50.0f));
}

TEST(Executable, FindsBuffersByRoleAndStage) {
  auto device = OpenCpu();
  auto executable = Executable::Create(*device, TestProgram(8)).value();
  EXPECT_THAT(executable->BuffersOf(BufferRole::kOutput), ElementsAre(4));
  EXPECT_EQ(executable->BufferOfStage(4), 4);
  EXPECT_EQ(executable->BufferOfStage(1), 1);
  EXPECT_EQ(executable->BufferOfStage(2), -1);
  EXPECT_EQ(executable->BufferOfStage(-1), -1);
}

// So that kernels of several executables that share what was prepared run side by side.
TEST(Executable, KernelsOfARunWriteNeitherConstantsNorWhatWasPrepared) {
  auto device = OpenCpu();
  auto executable = Executable::Create(*device, TestProgram(8)).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  const std::vector<Launch> launches = executable->Launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_THAT(launches[0].writes, ElementsAre(false, false, true)) << "x, prepared, tmp";
  EXPECT_THAT(launches[1].writes, ElementsAre(true, true)) << "tmp, out";
}

TEST(Executable, CopiesRunOneAfterTheOther) {
  auto device = OpenCpu();
  Program program = CProgram("void inc(void* const* a, long b, long e) { ((float*)a[0])[0] += 1; }");
  program.buffers = {FloatBuffer("out", 1, BufferRole::kOutput)};
  program.kernels = {KernelOf("inc", {0}, 1)};
  auto executable = Executable::Create(*device, program).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  ASSERT_TRUE(device->Fill(*executable->buffer(0), 0).ok());
  ASSERT_TRUE(executable->MakePlan(7).value()->Run().ok());
  EXPECT_THAT(ReadFloats(*device, *executable->buffer(0), 1), ElementsAre(7));
}

TEST(Executable, RefusesProgramsThatContradictThemselves) {
  auto device = OpenCpu();
  Program program = TestProgram(8);
  program.kernels[1].args[0] = 5;
  EXPECT_EQ(Executable::Create(*device, program).status().message(), "kernel 'second' names buffer 5 of 5");
  program = TestProgram(8);
  program.prologue[0].grid[0] = 0;
  EXPECT_EQ(Executable::Create(*device, program).status().message(), "kernel 'prepare' has an empty grid or block");
  program = TestProgram(8);
  program.buffers[2].elements = -4;
  EXPECT_EQ(Executable::Create(*device, program).status().message(),
            "the program's buffer 'prepared' has no valid size");
}

// Launches hold numbers of 32 bits: 2^32 + 1 blocks would be one.
TEST(Executable, RefusesGridsThatNoGpuLaunches) {
  auto device = OpenCpu();
  Program program = TestProgram(8);
  program.kernels[1].grid[0] = int64_t{1} << 32 | 1;
  EXPECT_TRUE(Executable::Create(*device, program).ok()) << "iterations of a loop on cpu";
  EXPECT_EQ(CheckLaunch(program.kernels[1]),
            absl::FailedPreconditionError(
                "kernel 'second' has 4294967297 blocks along an axis; a GPU launches 1 to 2147483647"));
  program.target.kind = TargetKind::kCuda;
  const auto module = std::make_shared<Module>();
  EXPECT_EQ(Executable::Create(*device, program, module).status(), CheckLaunch(program.kernels[1]));
  program.kernels[1].grid = {kMaxGridBlocks, 1, 1};
  EXPECT_TRUE(Executable::Create(*device, program, module).ok());
  program.kernels[1].block[2] = int64_t{1} << 40;
  EXPECT_EQ(Executable::Create(*device, program, module).status().message(),
            "kernel 'second' has 1099511627776 threads of a block along an axis; a GPU launches 1 to 2147483647");
}

TEST(FillForMeasuring, DrawsInputsAndPoisonsTheRest) {
  auto device = OpenCpu();
  auto executable = Executable::Create(*device, TestProgram(1000)).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  ASSERT_TRUE(FillForMeasuring(*executable, 3).ok());
  const std::vector<float> x = ReadFloats(*device, *executable->buffer(0), 1000);
  const std::vector<float> w = ReadFloats(*device, *executable->buffer(1), 1000);
  EXPECT_NE(x, w);
  for (float value : x) {
    ASSERT_GE(value, -1);
    ASSERT_LT(value, 1);
  }
  for (float value : ReadFloats(*device, *executable->buffer(4), 1000)) ASSERT_TRUE(std::isnan(value));
  ASSERT_TRUE(FillForMeasuring(*executable, 3).ok());
  EXPECT_EQ(ReadFloats(*device, *executable->buffer(0), 1000), x);
  ASSERT_TRUE(FillForMeasuring(*executable, 4).ok());
  EXPECT_NE(ReadFloats(*device, *executable->buffer(0), 1000), x);
}

TEST(FillRandom, StaysInRangeForEveryType) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64}) {
    Array array(dtype, {5000});
    FillRandom(array, 1);
    double low = 0, high = 0, sum = 0;
    for (int i = 0; i < 5000; ++i) {
      low = std::min(low, array.at(i));
      high = std::max(high, array.at(i));
      sum += array.at(i);
    }
    EXPECT_GE(low, -1) << NameOf(dtype);
    EXPECT_LT(low, -0.99) << NameOf(dtype);
    EXPECT_LT(high, 1) << NameOf(dtype);
    EXPECT_GT(high, 0.99) << NameOf(dtype);
    EXPECT_LT(std::abs(sum / 5000), 0.05) << NameOf(dtype);
  }
  for (DType dtype : {DType::kInt32, DType::kInt64, DType::kInt8}) {
    Array array(dtype, {1000});
    FillRandom(array, 1, -2, 3);
    std::vector<int> seen(6, 0);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_GE(array.int_at(i), -2);
      ASSERT_LE(array.int_at(i), 3);
      ++seen[array.int_at(i) + 2];
    }
    EXPECT_THAT(seen, Each(::testing::Gt(0)));
  }
}

// Maps come with packages, from anywhere; only GPUs have them.
TEST(Executable, TensorMapsAreForCudaAlone) {
  auto device = OpenCpu();
  Program program = TestProgram(64);
  program.kernels[0].tensor_maps = {{.arg = 0, .element_bytes = 4, .box = {0, {64}, {1}, {32}, 0}}};
  EXPECT_EQ(Executable::Create(*device, program).status(),
            absl::InvalidArgumentError("kernel 'first' has tensor maps, and is not for cuda"));
  program.target = Target::Parse("cuda -arch=sm_90").value();
  program.kernels[0].tensor_maps[0].box.extents[0] = 65;
  EXPECT_EQ(Executable::Create(*device, program).status(),
            absl::InvalidArgumentError("a tensor map of kernel 'first' does not fit its buffer"));
}

}  // namespace
}  // namespace diapason
