#include "compiler/runtime/device.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "compiler/tensor/processor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kScale[] = R"(
void scale(void* const* args, long begin, long end) {
  const float* x = args[0];
  float* y = args[1];
  for (long i = begin; i < end; ++i) y[i] = x[i] * FACTOR;
}
)";

std::string Scale(const std::string& factor) { return "#define FACTOR " + factor + "\n" + kScale; }

Target CpuTarget(int cores) {
  Target target;
  target.num_cores = cores;
  return target;
}

std::unique_ptr<Device> Open(int cores) { return OpenDevice(CpuTarget(cores)).value(); }

TEST(CpuDevice, FactsTellTheThreadsAsked) {
  EXPECT_EQ(Open(3)->facts().num_cores, 3);
  EXPECT_GE(Open(0)->facts().num_cores, 1);
  EXPECT_EQ(Open(1)->kind(), TargetKind::kCpu);
}

TEST(CpuDevice, RunsKernelsInOrder) {
  auto device = Open(2);
  auto module = device->Load(CProgram(Scale("3.0f"))).value();
  auto x = device->Allocate(400).value(), y = device->Allocate(400).value();
  WriteFloats(*device, *x, std::vector<float>(100, 2));
  const Kernel kernel = KernelOf("scale", {0, 1}, 100);
  auto plan =
      device->MakePlan({{module.get(), kernel, {x.get(), y.get()}}, {module.get(), kernel, {y.get(), x.get()}}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE((*plan)->Run().ok());
  EXPECT_THAT(ReadFloats(*device, *x, 100), Each(18.0f));
  EXPECT_THAT(ReadFloats(*device, *y, 100), Each(6.0f));
}

TEST(CpuDevice, RedirectedLaunchesUseTheOtherMemory) {
  auto device = Open(2);
  auto module = device->Load(CProgram(Scale("3.0f"))).value();
  auto x = device->Allocate(400).value(), y = device->Allocate(400).value(), z = device->Allocate(400).value();
  WriteFloats(*device, *x, std::vector<float>(100, 2));
  WriteFloats(*device, *y, std::vector<float>(100, 0));
  const Kernel kernel = KernelOf("scale", {0, 1}, 100);
  auto plan = device->MakePlan({{module.get(), kernel, {x.get(), y.get()}}, {module.get(), kernel, {y.get(), x.get()}}})
                  .value();
  EXPECT_TRUE(plan->CanRedirect(*y));
  EXPECT_FALSE(plan->CanRedirect(*z)) << "no launch has it";
  ASSERT_EQ(plan->Redirect({{y.get(), device->AddressOf(*z)}}), absl::OkStatus());
  ASSERT_EQ(plan->Run(), absl::OkStatus());
  EXPECT_THAT(ReadFloats(*device, *x, 100), Each(18.0f));
  EXPECT_THAT(ReadFloats(*device, *y, 100), Each(0.0f));
  EXPECT_THAT(ReadFloats(*device, *z, 100), Each(6.0f));
  ASSERT_EQ(plan->Redirect({{y.get(), device->AddressOf(*y)}}), absl::OkStatus());
  ASSERT_EQ(plan->Run(), absl::OkStatus());
  EXPECT_THAT(ReadFloats(*device, *y, 100), Each(54.0f));
  EXPECT_THAT(ReadFloats(*device, *z, 100), Each(6.0f));
}

TEST(CpuDevice, TimeRunsAsOftenAsAsked) {
  auto device = Open(2);
  auto module = device->Load(CProgram(Scale("2.0f"))).value();
  auto x = device->Allocate(4).value();
  WriteFloats(*device, *x, {1});
  auto plan = device->MakePlan({{module.get(), KernelOf("scale", {0, 0}, 1), {x.get(), x.get()}}}).value();
  const absl::StatusOr<double> seconds = plan->Time(10);
  ASSERT_TRUE(seconds.ok());
  EXPECT_GT(*seconds, 0);
  EXPECT_LT(*seconds, 1);
  EXPECT_THAT(ReadFloats(*device, *x, 1), Each(1024.0f));
}

// Objects with the same symbols, loaded together and one after the other: none may be mistaken for another.
TEST(CpuDevice, ModulesWithTheSameNamesStayApart) {
  auto device = Open(1);
  auto x = device->Allocate(4).value(), y = device->Allocate(4).value();
  WriteFloats(*device, *x, {1});
  const auto result = [&](const Module& module) {
    auto plan = device->MakePlan({{&module, KernelOf("scale", {0, 1}, 1), {x.get(), y.get()}}}).value();
    EXPECT_TRUE(plan->Run().ok());
    return ReadFloats(*device, *y, 1)[0];
  };
  auto two = device->Load(CProgram(Scale("2.0f"))).value();
  auto three = device->Load(CProgram(Scale("3.0f"))).value();
  EXPECT_EQ(result(*two), 2);
  EXPECT_EQ(result(*three), 3);
  two.reset();
  auto five = device->Load(CProgram(Scale("5.0f"))).value();
  EXPECT_EQ(result(*five), 5);
  EXPECT_EQ(result(*three), 3);
}

TEST(CpuDevice, BuffersAreAlignedAndPadded) {
  auto device = Open(1);
  Program program = CProgram(R"(
void look(void* const* args, long begin, long end) {
  unsigned char* bytes = args[0];
  volatile unsigned char sum = 0;
  for (int i = 0; i < 64; ++i) sum += bytes[100 + i];   /* the padding */
  ((unsigned char*)args[0])[0] = (unsigned char)((unsigned long)args[0] % 256);
})");
  auto module = device->Load(program).value();
  for (int64_t bytes : {100, 5 << 20}) {
    auto buffer = device->Allocate(bytes).value();
    EXPECT_EQ(buffer->bytes(), bytes);
    ASSERT_TRUE(device->Fill(*buffer, 0xff).ok());
    auto plan = device->MakePlan({{module.get(), KernelOf("look", {0}, 1), {buffer.get()}}}).value();
    ASSERT_TRUE(plan->Run().ok());
    uint8_t first[2] = {9, 9};
    ASSERT_TRUE(device->CopyOut(first, *buffer, 2).ok());
    EXPECT_EQ(first[0], 0);     // address modulo 256
    EXPECT_EQ(first[1], 0xff);  // as filled
  }
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(CpuDevice, ZerosTakeNoMemoryUntilTheyAreWritten) {
  auto device = Open(1);
  constexpr int64_t kBytes = (32 << 20) + 100;
  for (const int64_t bytes : {int64_t{0}, int64_t{100}, int64_t{10'000}, kBytes}) {
    {
      auto used = device->Allocate(bytes).value();  // whose memory the next buffer may get
      ASSERT_TRUE(device->Fill(*used, 0xff).ok());
    }
    const int64_t before = ResidentBytes();
    auto buffer = device->AllocateZeros(bytes).value();
    EXPECT_LT(ResidentBytes() - before, kBytes / 2);
    std::vector<uint8_t> got(static_cast<size_t>(bytes), 7);
    ASSERT_TRUE(device->CopyOut(got.data(), *buffer, bytes).ok());
    EXPECT_THAT(got, Each(0));
  }
}

TEST(CpuDevice, CopiesBetweenBuffers) {
  auto device = Open(1);
  auto from = device->Allocate(3).value(), to = device->Allocate(3).value();
  const uint8_t some[3] = {1, 2, 3};
  ASSERT_TRUE(device->CopyIn(*from, some, 3).ok());
  ASSERT_TRUE(device->Fill(*to, 0).ok());
  ASSERT_TRUE(device->Copy(*to, *from, 2).ok());
  uint8_t got[3];
  ASSERT_TRUE(device->CopyOut(got, *to, 3).ok());
  EXPECT_THAT(got, ElementsAre(1, 2, 0));
}

TEST(CpuDevice, ViewsShareTheMemory) {
  auto device = Open(1);
  auto arena = device->Allocate(2048).value();
  auto low = device->View(*arena, 0, 1024).value(), high = device->View(*arena, 512, 8).value();
  EXPECT_EQ(high->bytes(), 8);
  ASSERT_TRUE(device->Fill(*low, 0).ok());
  WriteFloats(*device, *high, {7, 8});
  EXPECT_EQ(ReadFloats(*device, *low, 130)[128], 7);
  EXPECT_EQ(ReadFloats(*device, *low, 130)[129], 8);
}

TEST(CpuDevice, ObjectsAndTargetsOfAnotherArchitectureAreRefused) {
  if (HostTriple() != "x86_64-linux-gnu") GTEST_SKIP() << "this machine is no x86-64";
  Program arm = CProgram("int f(void) { return 1; }");
  arm.binary[18] = static_cast<char>(183);  // e_machine: EM_AARCH64
  arm.binary[19] = 0;
  EXPECT_EQ(Open(1)->Load(arm).status(),
            absl::FailedPreconditionError("the kernel binary does not load: it is compiled for aarch64, and this "
                                          "machine is x86-64"));
  EXPECT_EQ(
      OpenDevice(Target::Parse("cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1").value()).status(),
      absl::UnavailableError("target 'cpu -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1' is for "
                             "aarch64-linux-gnu and this machine is x86-64: run and measure it on such a machine"));
}

TEST(CpuDevice, TellsWhatIsWrong) {
  auto device = Open(1);
  const absl::Status memory = device->Allocate(int64_t{1} << 62).status();
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(memory.message(), "out of memory for a buffer of 4611686018427387904 bytes");

  Program damaged;
  damaged.binary = "no shared object";
  const absl::Status load = device->Load(damaged).status();
  EXPECT_EQ(load.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(load.message(), HasSubstr("the kernel binary does not load: "));

  // An object that needs a feature which no processor has.
  const Program wider = CProgram("const char diapason_processor_features[] = \" avx2048\";");
  if (!HostFeatures().empty()) {
    EXPECT_EQ(device->Load(wider).status().message(),
              "the kernel binary does not load: it is compiled for a processor with avx2048, which this one does not "
              "have; build it for this machine, or with -mcpu= of an older processor");
  }

  Program foreign;
  foreign.target.kind = TargetKind::kOpenCl;
  EXPECT_EQ(device->Load(foreign).status().message(), "a program for target 'opencl' cannot be loaded on a cpu device");

  auto module = device->Load(CProgram(Scale("2.0f"))).value();
  const absl::Status kernel = device->MakePlan({{module.get(), KernelOf("other", {}, 1), {}}}).status();
  EXPECT_EQ(kernel.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(kernel.message(), "the kernel binary has no function 'other'");

  EXPECT_EQ(OpenDevice(CpuTarget(-2)).status().message(), "-num-cores=-2: give a number above 0");
}

TEST(CpuDevice, FlushCacheLeavesBuffersAlone) {
  auto device = Open(2);
  auto x = device->Allocate(4).value();
  WriteFloats(*device, *x, {5});
  ASSERT_TRUE(device->FlushCache().ok());
  ASSERT_TRUE(device->FlushCache().ok());
  EXPECT_EQ(ReadFloats(*device, *x, 1)[0], 5);
}

}  // namespace
}  // namespace diapason
