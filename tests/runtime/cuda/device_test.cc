// The cuda device on a real GPU; skipped, with the reason, where there is none. A program of its own: it can be copied
// to a machine with a GPU and run there. A kernel that faults ends the context of its process, so those run in a child.
#include "compiler/runtime/device.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/codegen/compile.h"
#include "compiler/codegen/reference.h"
#include "compiler/runtime/dynamic_library.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/fill.h"
#include "compiler/runtime/measure.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/interpret.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/runtime/c_program.h"

namespace diapason {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kSource[] = R"(
extern "C" __global__ void twice(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }
extern "C" __global__ void add(const float* w, float* y) {
  y[blockIdx.x * blockDim.x + threadIdx.x] += w[blockIdx.x * blockDim.x + threadIdx.x];
}
extern "C" __global__ void grid3(float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x +
                gridDim.x * blockDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[i] = blockIdx.z * 100 + blockIdx.y * 10 + threadIdx.x;
}
// Reverses 20,000 floats through 80,000 bytes of dynamic shared memory: more than the static limit.
extern "C" __global__ void reverse_shared(const float* x, float* y) {
  extern __shared__ float tile[];
  for (int i = threadIdx.x; i < 20000; i += blockDim.x) tile[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < 20000; i += blockDim.x) y[i] = tile[19999 - i];
}
extern "C" __global__ void spin(float* out) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < 1000000);
  out[0] = 1;
}
extern "C" __global__ void wild(float** where) { (*where)[threadIdx.x] = 1; }
extern "C" __global__ void misaligned(char* where) { *(float*)(where + 1) = 1; }
)";

// Each block writes its rank in the cluster, after a barrier of the whole cluster.
constexpr char kClusterSource[] = R"(
extern "C" __global__ void ranks(float* out) {
  unsigned rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0) out[blockIdx.x] = 100 * size + rank;
}
)";

// Programmatic dependent launch: `late` lets the next kernel start and writes a while later, `pass` touches nothing,
// `copy` reads.
constexpr char kEarlySource[] = R"(
#define START asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#define WAIT asm volatile("griddepcontrol.wait;" ::: "memory");
extern "C" __global__ void late(const float* x, float* y) {
  START
  WAIT
  for (const long long start = clock64(); clock64() - start < 200000;) {}
  y[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void pass(const float* x) { START WAIT }
extern "C" __global__ void work_then_wait(const float* x, float* y) {
  START
  for (const long long start = clock64(); clock64() - start < 200000;) {}
  WAIT
  y[threadIdx.x] = x[threadIdx.x] + 1;
}
extern "C" __global__ void copy(const float* x, float* y) { START WAIT y[threadIdx.x] = x[threadIdx.x]; }
)";

Target CudaTarget() {
  Target target;
  target.kind = TargetKind::kCuda;
  return target;
}

absl::StatusOr<Program> CudaProgram(const std::string& source, const std::string& arch) {
  Program program;
  program.target = CudaTarget();
  program.target.arch = arch;
  program.source = source;
  const absl::Status compiled = CompileSource(program, 60);
  if (!compiled.ok()) return compiled;
  return program;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<Device>> opened = OpenDevice(CudaTarget());
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    device_ = *std::move(opened);
  }

  std::unique_ptr<Module> LoadSource(const std::string& source) {
    absl::StatusOr<Program> program = CudaProgram(source, device_->facts().arch);
    EXPECT_TRUE(program.ok()) << program.status();
    absl::StatusOr<std::unique_ptr<Module>> module = device_->Load(*program);
    EXPECT_TRUE(module.ok()) << module.status();
    return *std::move(module);
  }

  std::unique_ptr<DeviceBuffer> Floats(const std::vector<float>& values) {
    auto buffer = device_->Allocate(values.size() * 4).value();
    WriteFloats(*device_, *buffer, values);
    return buffer;
  }

  // Makes a plan of one launch and runs it.
  absl::Status RunOne(const Module& module, const Kernel& kernel, std::vector<DeviceBuffer*> args) {
    absl::StatusOr<std::unique_ptr<Plan>> plan = device_->MakePlan({{&module, kernel, std::move(args)}});
    if (!plan.ok()) return plan.status();
    return (*plan)->Run();
  }

  std::unique_ptr<Device> device_;
};

// Runs without a GPU: that the sources of this file are right is worth knowing before one is at hand.
TEST(CudaSources, Compile) {
  const absl::StatusOr<Program> plain = CudaProgram(kSource, "sm_90");
  if (plain.status().code() == absl::StatusCode::kUnavailable) GTEST_SKIP() << plain.status().message();
  EXPECT_TRUE(plain.ok()) << plain.status();
  const absl::StatusOr<Program> cluster = CudaProgram(kClusterSource, "sm_90");
  EXPECT_TRUE(cluster.ok()) << cluster.status();
  const absl::StatusOr<Program> early = CudaProgram(kEarlySource, "sm_90");
  EXPECT_TRUE(early.ok()) << early.status();
}

TEST_F(CudaDeviceTest, FactsComeFromTheDevice) {
  const DeviceFacts& facts = device_->facts();
  EXPECT_THAT(facts.model, ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(facts.arch, StartsWith("sm_"));
  EXPECT_THAT(facts.uuid, StartsWith("GPU-"));
  EXPECT_EQ(facts.uuid.size(), 40u);
  EXPECT_THAT(facts.driver, StartsWith("CUDA "));
  EXPECT_GT(facts.num_cores, 1);
  EXPECT_EQ(facts.warp_size, 32);
  EXPECT_EQ(facts.max_threads_per_block, 1024);
  EXPECT_GE(facts.max_shared_bytes, 48 << 10);
  EXPECT_GE(facts.shared_bytes_per_core, facts.max_shared_bytes);
  EXPECT_GE(facts.l2_bytes, 1 << 20);
  EXPECT_GT(facts.flops, 1e12);
  EXPECT_GT(facts.bandwidth, 1e11);
  EXPECT_LT(facts.bandwidth, 2e13);
  std::printf("%s %s %s, %d multiprocessors, %.1f TFLOP/s, %.2f TB/s, L2 %lld MiB, shared %lld, clocks %.0f %.0f MHz\n",
              facts.model.c_str(), facts.arch.c_str(), facts.uuid.c_str(), facts.num_cores, facts.flops / 1e12,
              facts.bandwidth / 1e12, static_cast<long long>(facts.l2_bytes >> 20),
              static_cast<long long>(facts.max_shared_bytes), device_->clocks().core_mhz, device_->clocks().memory_mhz);
}

TEST_F(CudaDeviceTest, BuffersAreAlignedAndHoldWhatIsWritten) {
  for (int64_t bytes : {0, 1, 100, 1 << 20}) {
    auto buffer = device_->Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->bytes(), bytes);
    ASSERT_TRUE(device_->Fill(**buffer, 0xff).ok());
    std::vector<uint8_t> got(bytes, 0);
    ASSERT_TRUE(device_->CopyOut(got.data(), **buffer, bytes).ok());
    EXPECT_THAT(got, Each(0xff));
  }
}

TEST_F(CudaDeviceTest, CopiesBetweenBuffers) {
  const std::vector<uint8_t> some = {1, 2, 3, 4, 5};
  auto from = device_->Allocate(5), to = device_->Allocate(5);
  ASSERT_TRUE(from.ok() && to.ok());
  ASSERT_TRUE(device_->CopyIn(**from, some.data(), 5).ok());
  ASSERT_TRUE(device_->Fill(**to, 0).ok());
  ASSERT_TRUE(device_->Copy(**to, **from, 3).ok());
  std::vector<uint8_t> got(5);
  ASSERT_TRUE(device_->CopyOut(got.data(), **to, 5).ok());
  EXPECT_THAT(got, ElementsAre(1, 2, 3, 0, 0));
}

TEST_F(CudaDeviceTest, LaunchesOfAPlanSeeEachOthersWritesAndTimeCountsThem) {
  auto module = LoadSource(kSource);
  auto x = Floats({1, 1, 1, 1});
  const Launch launch{module.get(), KernelOf("twice", {0}, 2, 2), {x.get()}};
  auto plan = device_->MakePlan({launch, launch, launch});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(ReadFloats(*device_, *x, 4), Each(1.0f)) << "making a plan must not run it";
  ASSERT_TRUE((*plan)->Run().ok());
  EXPECT_THAT(ReadFloats(*device_, *x, 4), Each(8.0f));
  const absl::StatusOr<double> seconds = (*plan)->Time(3);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 0);
  EXPECT_LT(*seconds, 0.1);
  EXPECT_THAT(ReadFloats(*device_, *x, 4), Each(4096.0f));
}

TEST_F(CudaDeviceTest, ParallelPathsComputeWhatTheOrderSays) {
  auto module = LoadSource(kSource);
  auto x = Floats({1, 1, 1, 1}), y = Floats({2, 2, 2, 2}), z = Floats({3, 3, 3, 3});
  const auto twice = [&](const std::unique_ptr<DeviceBuffer>& buffer) {
    return Launch{module.get(), KernelOf("twice", {0}, 2, 2), {buffer.get()}, {true}};
  };
  // Three chains; a view joins two of them.
  auto whole = device_->Allocate(2048).value();
  auto low = device_->View(*whole, 0, 1024).value(), high = device_->View(*whole, 1024, 1024).value();
  WriteFloats(*device_, *low, std::vector<float>(256, 1));
  WriteFloats(*device_, *high, std::vector<float>(256, 1));
  Launch all{module.get(), KernelOf("twice", {0}, 256, 2), {whole.get()}, {true}};
  Launch first{module.get(), KernelOf("twice", {0}, 128, 2), {low.get()}, {true}};
  Launch second{module.get(), KernelOf("twice", {0}, 128, 2), {high.get()}, {true}};
  auto plan = device_->MakePlanWith(
      {twice(x), twice(y), first, second, twice(x), twice(z), all, twice(y), twice(x), second}, {.parallel = true});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GT((*plan)->paths(), 1);
  for (int run = 1; run <= 3; ++run) {
    ASSERT_TRUE((*plan)->Run().ok());
    EXPECT_THAT(ReadFloats(*device_, *x, 4), Each(std::pow(8.0f, run)));
    EXPECT_THAT(ReadFloats(*device_, *y, 4), Each(2 * std::pow(4.0f, run)));
    EXPECT_THAT(ReadFloats(*device_, *z, 4), Each(3 * std::pow(2.0f, run)));
    EXPECT_THAT(ReadFloats(*device_, *low, 256), Each(std::pow(4.0f, run)));
    EXPECT_THAT(ReadFloats(*device_, *high, 256), Each(std::pow(8.0f, run)));
  }
  ASSERT_TRUE((*plan)->Time(2).ok());
  EXPECT_EQ(device_->MakePlanWith({twice(x), twice(x)}, {.parallel = true}).value()->paths(), 1);
}

TEST_F(CudaDeviceTest, AnEmptyPlanRuns) {
  auto plan = device_->MakePlan({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE((*plan)->Run().ok());
  EXPECT_TRUE((*plan)->Time(3).ok());
}

TEST_F(CudaDeviceTest, GridIsBlocksInThreeDimensions) {
  auto module = LoadSource(kSource);
  auto out = device_->Allocate(48).value();
  Kernel kernel = KernelOf("grid3", {0}, 1, 2);
  kernel.grid = {1, 2, 3};
  ASSERT_TRUE(RunOne(*module, kernel, {out.get()}).ok());
  EXPECT_THAT(ReadFloats(*device_, *out, 12), ElementsAre(0, 1, 10, 11, 100, 101, 110, 111, 200, 201, 210, 211));
}

TEST_F(CudaDeviceTest, MoreThan48KiBOfSharedMemoryIsDynamic) {
  if (device_->facts().max_shared_bytes < 80000)
    GTEST_SKIP() << device_->facts().model << " has less than 80,000 bytes";
  auto module = LoadSource(kSource);
  std::vector<float> values(20000);
  for (int i = 0; i < 20000; ++i) values[i] = static_cast<float>(i);
  auto x = Floats(values), y = device_->Allocate(80000).value();
  Kernel kernel = KernelOf("reverse_shared", {0, 1}, 1, 256);
  kernel.shared_bytes = 80000;
  const absl::Status run = RunOne(*module, kernel, {x.get(), y.get()});
  ASSERT_TRUE(run.ok()) << run;
  const std::vector<float> got = ReadFloats(*device_, *y, 20000);
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(got[i], 19999 - i);
}

TEST_F(CudaDeviceTest, ClustersOfBlocks) {
  if (std::stoi(device_->facts().arch.substr(3)) < 90) GTEST_SKIP() << device_->facts().arch << " has no clusters";
  auto module = LoadSource(kClusterSource);
  auto out = device_->Allocate(4 * 32).value();
  for (int cluster : {2, 4, 8, 16}) {
    Kernel kernel = KernelOf("ranks", {0}, 32, 32);
    kernel.cluster = cluster;
    const absl::Status run = RunOne(*module, kernel, {out.get()});
    if (cluster == 16 && run.code() == absl::StatusCode::kFailedPrecondition) break;  // not every GPU has them
    ASSERT_TRUE(run.ok()) << cluster << ": " << run;
    const std::vector<float> got = ReadFloats(*device_, *out, 32);
    for (int i = 0; i < 32; ++i)
      ASSERT_EQ(got[i], 100 * cluster + i % cluster) << "cluster " << cluster << " block " << i;
  }
}

// Kernels that start early wait for the one in front alone, which has waited itself: so for all before.
TEST_F(CudaDeviceTest, TheWaitForTheKernelInFrontIsOneForAllBefore) {
  if (std::stoi(device_->facts().arch.substr(3)) < 90)
    GTEST_SKIP() << device_->facts().arch << " starts no kernel early";
  auto module = LoadSource(kEarlySource);
  auto x = Floats({0, 0}), y = Floats({0, 0}), z = Floats({0, 0}), other = Floats({0, 0});
  const auto launch = [&](const char* name, std::vector<DeviceBuffer*> args, std::vector<bool> writes) {
    Launch one{module.get(), KernelOf(name, {}, 1, 2), std::move(args), std::move(writes)};
    one.kernel.overlap = true;
    return one;
  };
  const auto late = launch("late", {x.get(), y.get()}, {false, true}), pass = launch("pass", {other.get()}, {false}),
             copy = launch("copy", {y.get(), z.get()}, {false, true});
  for (bool parallel : {false, true}) {
    const std::vector<Launch> launches = {late, pass, pass, pass, copy, late, copy};
    auto plan = device_->MakePlanWith(launches, {.parallel = parallel});
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (int run = 1; run <= 50; ++run) {
      WriteFloats(*device_, *x, {static_cast<float>(run), 0.5f});
      ASSERT_TRUE((*plan)->Run().ok());
      EXPECT_THAT(ReadFloats(*device_, *z, 2), ElementsAre(run, 0.5f)) << parallel;
    }
    ASSERT_TRUE(device_->Fill(*z, 0).ok());
  }
}

void* Address(Device& device, const std::unique_ptr<DeviceBuffer>& buffer) { return device.AddressOf(*buffer); }

TEST_F(CudaDeviceTest, RedirectedLaunchesUseTheOtherMemory) {
  auto module = LoadSource(kSource);
  auto x = Floats({1, 1, 1, 1}), y = Floats({2, 2, 2, 2}), z = Floats({3, 3, 3, 3}), other = Floats({5, 5, 5, 5});
  const auto twice = [&](const std::unique_ptr<DeviceBuffer>& buffer) {
    return Launch{module.get(), KernelOf("twice", {0}, 2, 2), {buffer.get()}, {true}};
  };
  for (bool parallel : {false, true}) {
    WriteFloats(*device_, *x, {1, 1, 1, 1});
    WriteFloats(*device_, *y, {2, 2, 2, 2});
    WriteFloats(*device_, *other, {5, 5, 5, 5});
    const std::vector<Launch> launches = {twice(x), twice(y), twice(x)};
    auto plan = device_->MakePlanWith(launches, {.parallel = parallel}).value();
    EXPECT_EQ(plan->paths(), parallel ? 2 : 1);
    ASSERT_TRUE(plan->CanRedirect(*x) && plan->CanRedirect(*y));
    EXPECT_FALSE(plan->CanRedirect(*z)) << "no launch has it";
    ASSERT_EQ(plan->Redirect({{x.get(), Address(*device_, other)}}), absl::OkStatus());
    ASSERT_EQ(plan->Run(), absl::OkStatus());
    EXPECT_THAT(ReadFloats(*device_, *x, 4), Each(1.0f));
    EXPECT_THAT(ReadFloats(*device_, *y, 4), Each(4.0f)) << "not redirected";
    EXPECT_THAT(ReadFloats(*device_, *other, 4), Each(20.0f));
    // Others keep what they have; a buffer's own address puts it back.
    ASSERT_EQ(plan->Redirect({{y.get(), Address(*device_, z)}}), absl::OkStatus());
    ASSERT_TRUE(plan->Time(1).ok());
    EXPECT_THAT(ReadFloats(*device_, *other, 4), Each(80.0f));
    EXPECT_THAT(ReadFloats(*device_, *z, 4), Each(parallel ? 12.0f : 6.0f));
    ASSERT_EQ(plan->Redirect({{x.get(), Address(*device_, x)}, {y.get(), Address(*device_, y)}}), absl::OkStatus());
    ASSERT_EQ(plan->Run(), absl::OkStatus());
    EXPECT_THAT(ReadFloats(*device_, *x, 4), Each(4.0f));
    EXPECT_THAT(ReadFloats(*device_, *y, 4), Each(8.0f));
    EXPECT_THAT(ReadFloats(*device_, *other, 4), Each(80.0f));
  }
}

// Weights that do not fit in the cache together, added up by a chain of launches, in order and on two paths.
TEST_F(CudaDeviceTest, PlansWithPrefetchesComputeTheSame) {
  auto module = LoadSource(kSource);
  constexpr int64_t kFloats = 1 << 19;  // 2 MiB
  const int64_t count = device_->facts().l2_bytes / (4 * kFloats) / 2 + 8;
  std::vector<std::unique_ptr<DeviceBuffer>> weights;
  for (int64_t i = 0; i < count; ++i) weights.push_back(Floats(std::vector<float>(kFloats, static_cast<float>(i % 7))));
  auto x = Floats(std::vector<float>(kFloats, 0)), y = Floats(std::vector<float>(kFloats, 0));
  std::vector<Launch> launches;
  for (int64_t i = 0; i < count; ++i)
    launches.push_back({module.get(),
                        KernelOf("add", {0, 1}, kFloats / 256, 256),
                        {weights[i].get(), i % 2 == 0 ? x.get() : y.get()},
                        {false, true}});
  float even = 0, odd = 0;
  for (int64_t i = 0; i < count; ++i) (i % 2 == 0 ? even : odd) += static_cast<float>(i % 7);
  const bool able = std::stoi(device_->facts().arch.substr(3)) >= 90;
  for (bool parallel : {false, true}) {
    auto plan = device_->MakePlanWith(launches, {.parallel = parallel, .prefetch = true}).value();
    EXPECT_EQ(plan->prefetched_bytes() > count * kFloats, able);  // more than a quarter
    EXPECT_EQ(plan->paths(), parallel ? 2 : 1);
    for (int run = 0; run < 3; ++run) {
      ASSERT_EQ(device_->Fill(*x, 0), absl::OkStatus());
      ASSERT_EQ(device_->Fill(*y, 0), absl::OkStatus());
      ASSERT_EQ(plan->Run(), absl::OkStatus());
      EXPECT_THAT(ReadFloats(*device_, *x, kFloats), Each(even));
      EXPECT_THAT(ReadFloats(*device_, *y, kFloats), Each(odd));
    }
    // Another weight in the place of the last, which is fetched from where it is now.
    auto other = Floats(std::vector<float>(kFloats, 100));
    ASSERT_TRUE(plan->CanRedirect(*weights.back()));
    ASSERT_EQ(plan->Redirect({{weights.back().get(), Address(*device_, other)}}), absl::OkStatus());
    ASSERT_EQ(device_->Fill(*x, 0), absl::OkStatus());
    ASSERT_EQ(device_->Fill(*y, 0), absl::OkStatus());
    ASSERT_EQ(plan->Run(), absl::OkStatus());
    const float change = 100 - static_cast<float>((count - 1) % 7);
    const bool in_x = (count - 1) % 2 == 0;
    EXPECT_THAT(ReadFloats(*device_, *x, kFloats), Each(even + (in_x ? change : 0)));
    EXPECT_THAT(ReadFloats(*device_, *y, kFloats), Each(odd + (in_x ? 0 : change)));
  }
  EXPECT_EQ(device_->MakePlanWith({launches[0], launches[1]}, {.prefetch = true}).value()->prefetched_bytes(), 0)
      << "they stay in the cache";
}

TEST_F(CudaDeviceTest, RunsThatWereEnqueuedKeepTheirMemory) {
  auto module = LoadSource(kSource);
  std::vector<std::unique_ptr<DeviceBuffer>> outs;
  for (int i = 0; i < 5; ++i) outs.push_back(Floats({0}));
  auto plan = device_->MakePlan({{module.get(), KernelOf("spin", {0}, 1), {outs[0].get()}}}).value();  // 1 ms
  for (int i = 1; i < 5; ++i) {
    ASSERT_EQ(plan->Enqueue(nullptr), absl::OkStatus());
    ASSERT_EQ(plan->Redirect({{outs[0].get(), Address(*device_, outs[i])}}), absl::OkStatus());
  }
  ASSERT_EQ(plan->Run(), absl::OkStatus());  // on the device's own stream
  int (*wait)() = nullptr;
  const auto cuda = DynamicLibrary::Open({"libcuda.so.1"});
  ASSERT_TRUE(cuda != nullptr && cuda->Find("cuCtxSynchronize", wait));
  ASSERT_EQ(wait(), 0);
  for (int i = 0; i < 5; ++i) EXPECT_THAT(ReadFloats(*device_, *outs[i], 1), Each(1.0f)) << i;
}

TEST_F(CudaDeviceTest, RedirectedLaunchesKeepSharedMemoryAndClusters) {
  auto module = LoadSource(kSource);
  std::vector<float> values(20000);
  for (int i = 0; i < 20000; ++i) values[i] = i;
  auto x = Floats(values), y = device_->Allocate(80000).value(), z = device_->Allocate(80000).value();
  Kernel reverse = KernelOf("reverse_shared", {0, 1}, 1, 256);
  reverse.shared_bytes = 80000;
  auto plan = device_->MakePlan({{module.get(), reverse, {x.get(), y.get()}}}).value();
  ASSERT_EQ(plan->Redirect({{y.get(), Address(*device_, z)}}), absl::OkStatus());
  ASSERT_EQ(plan->Run(), absl::OkStatus());
  const std::vector<float> got = ReadFloats(*device_, *z, 20000);
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(got[i], 19999 - i);

  if (std::stoi(device_->facts().arch.substr(3)) < 90) GTEST_SKIP() << device_->facts().arch << " has no clusters";
  auto clusters = LoadSource(kClusterSource);
  auto out = device_->Allocate(4 * 32).value(), other = device_->Allocate(4 * 32).value();
  for (int cluster : {2, 4, 8}) {
    Kernel kernel = KernelOf("ranks", {0}, 32, 32);
    kernel.cluster = cluster;
    auto ranks = device_->MakePlan({{clusters.get(), kernel, {out.get()}}}).value();
    ASSERT_EQ(device_->Fill(*out, 0), absl::OkStatus());
    ASSERT_EQ(ranks->Redirect({{out.get(), Address(*device_, other)}}), absl::OkStatus());
    ASSERT_EQ(ranks->Run(), absl::OkStatus());
    const std::vector<float> found = ReadFloats(*device_, *other, 32);
    for (int i = 0; i < 32; ++i) ASSERT_EQ(found[i], 100 * cluster + i % cluster) << cluster << " block " << i;
    EXPECT_THAT(ReadFloats(*device_, *out, 32), Each(0.0f));
  }
}

// What a kernel that starts early reads is right after a redirection, and it still starts early.
TEST_F(CudaDeviceTest, RedirectedLaunchesStartEarlyAsBefore) {
  if (std::stoi(device_->facts().arch.substr(3)) < 90)
    GTEST_SKIP() << device_->facts().arch << " starts no kernel early";
  auto module = LoadSource(kEarlySource);
  std::vector<std::unique_ptr<DeviceBuffer>> chain, others;
  for (int i = 0; i < 9; ++i) {
    chain.push_back(Floats({0, 0}));
    others.push_back(Floats({0, 0}));
  }
  const auto make = [&](bool overlap) {
    std::vector<Launch> launches;
    for (int i = 0; i < 8; ++i) {
      launches.push_back(
          {module.get(), KernelOf("work_then_wait", {}, 1, 2), {chain[i].get(), chain[i + 1].get()}, {false, true}});
      launches.back().kernel.overlap = overlap;
    }
    return device_->MakePlan(launches).value();
  };
  auto strict = make(false), early = make(true);
  const auto seconds = [](Plan& plan) { return plan.Time(20).value(); };
  seconds(*strict), seconds(*early);
  const double in_order = seconds(*strict), before = seconds(*early);
  EXPECT_LT(before, 0.8 * in_order);
  for (int run = 1; run <= 50; ++run) {
    auto& to = run % 2 != 0 ? others : chain;
    std::vector<Redirection> redirections;
    for (int i = 0; i < 9; ++i) redirections.push_back({chain[i].get(), Address(*device_, to[i])});
    ASSERT_EQ(early->Redirect(redirections), absl::OkStatus());
    WriteFloats(*device_, *to[0], {static_cast<float>(run), 0.5f});
    ASSERT_EQ(early->Run(), absl::OkStatus());
    ASSERT_THAT(ReadFloats(*device_, *to[8], 2), ElementsAre(run + 8, 8.5f)) << run;
  }
  const double after = seconds(*early);
  std::printf("8 kernels, 20 times: %.0f us in order, %.0f us with early starts, %.0f us redirected\n", in_order * 1e6,
              before * 1e6, after * 1e6);
  EXPECT_LT(after, 0.8 * in_order);
}

TEST_F(CudaDeviceTest, ViewsShareTheMemory) {
  auto module = LoadSource(kSource);
  auto arena = device_->Allocate(4096).value();
  ASSERT_TRUE(device_->Fill(*arena, 0).ok());
  auto view = device_->View(*arena, 1024, 16).value();
  WriteFloats(*device_, *view, {1, 2, 3, 4});
  ASSERT_TRUE(RunOne(*module, KernelOf("twice", {0}, 2, 2), {view.get()}).ok());
  const std::vector<float> all = ReadFloats(*device_, *arena, 1024);
  EXPECT_EQ(all[255], 0);
  EXPECT_EQ(all[256], 2);
  EXPECT_EQ(all[259], 8);
  EXPECT_EQ(all[260], 0);
}

TEST_F(CudaDeviceTest, TimeIsThatOfTheDevice) {
  auto module = LoadSource(kSource);
  auto out = device_->Allocate(4).value();
  const Launch launch{module.get(), KernelOf("spin", {0}, 1), {out.get()}};  // 1 ms
  auto plan = device_->MakePlan({launch, launch}).value();
  ASSERT_TRUE(plan->Run().ok());
  const absl::StatusOr<double> seconds = plan->Time(5);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_GT(*seconds, 9.9e-3);
  EXPECT_LT(*seconds, 13e-3);
}

TEST_F(CudaDeviceTest, ShortKernelsAreMeasuredWithoutTheirLaunch) {
  absl::StatusOr<Program> program = CudaProgram(kSource, device_->facts().arch);
  ASSERT_TRUE(program.ok()) << program.status();
  program->buffers = {FloatBuffer("x", 1 << 16, BufferRole::kInput)};
  program->kernels = {KernelOf("twice", {0}, 256, 256)};
  auto executable = Executable::Create(*device_, *program).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  ASSERT_TRUE(FillForMeasuring(*executable, 1).ok());
  TimingOptions options;
  options.repeat = 5;
  options.min_repeat_ms = 10;
  const absl::StatusOr<Timing> warm = MeasureExecutable(*executable, options);
  ASSERT_TRUE(warm.ok()) << warm.status();
  ASSERT_EQ(warm->samples.size(), 5u);
  EXPECT_GT(MedianSeconds(*warm), 0.3e-6);
  EXPECT_LT(MedianSeconds(*warm), 5e-6);
  EXPECT_GE(warm->number * MedianSeconds(*warm), 8e-3);
  options.flush_cache = true;
  const absl::StatusOr<Timing> cold = MeasureExecutable(*executable, options);
  ASSERT_TRUE(cold.ok()) << cold.status();
  EXPECT_GT(MedianSeconds(*cold), MedianSeconds(*warm));
  options.flush_cache = false;
  options.race_seconds = MedianSeconds(*warm) / 3;
  const absl::StatusOr<Timing> raced = MeasureExecutable(*executable, options);
  ASSERT_TRUE(raced.ok()) << raced.status();
  EXPECT_TRUE(raced->stopped_early);
  std::printf("twice: warm %.2f us, cold with launch %.2f us; wall of measuring: full %.1f ms, stopped early %.1f ms\n",
              MedianSeconds(*warm) * 1e6, MedianSeconds(*cold) * 1e6, warm->run_seconds * 1e3,
              raced->run_seconds * 1e3);
}

TEST_F(CudaDeviceTest, ReferenceProgramsGiveWhatTheInterpreterGives) {
  DagBuilder b;
  const int x = b.Placeholder("x", {17, 33}), w = b.Constant("w", {33, 21});
  const int c = b.Reduce("c", {17, 21}, {33}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  const int y = b.Compute("y", {17, 21}, [&](const auto& i) { return Add(b.At(c, {i[0], i[1]}), FloatImm(0.5)); });
  const ComputeDag dag = b.Build({y}).value();
  Target target = CudaTarget();
  target.arch = device_->facts().arch;
  const absl::StatusOr<Program> program = CompileReference(dag, target);
  ASSERT_TRUE(program.ok()) << program.status();
  auto executable = Executable::Create(*device_, *program).value();
  ASSERT_TRUE(executable->AllocateRest().ok());
  ASSERT_TRUE(FillForMeasuring(*executable, 5).ok());
  std::map<int, Array> inputs;
  for (int id : dag.inputs()) {
    inputs[id] = Array(DType::kFloat32, dag.stage(id).shape());
    ASSERT_TRUE(device_
                    ->CopyOut(inputs[id].data.data(), *executable->buffer(executable->BufferOfStage(id)),
                              inputs[id].data.size())
                    .ok());
  }
  ASSERT_TRUE(executable->RunPrologue().ok());
  ASSERT_TRUE(executable->MakePlan().value()->Run().ok());
  const std::vector<Array> want = Interpret(dag, inputs).value();
  const std::vector<float> got = ReadFloats(*device_, *executable->buffer(executable->BufferOfStage(y)), 17 * 21);
  for (int i = 0; i < 17 * 21; ++i) ASSERT_NEAR(got[i], want[0].at(i), 1e-4) << i;
}

TEST_F(CudaDeviceTest, RefusalsAreNamedAndLeaveTheDeviceUsable) {
  auto module = LoadSource(kSource);
  auto x = Floats({1, 1});

  const absl::Status threads = RunOne(*module, KernelOf("twice", {0}, 1, 2048), {x.get()});
  EXPECT_EQ(threads.code(), absl::StatusCode::kFailedPrecondition) << threads;
  EXPECT_THAT(threads.message(), HasSubstr("launching kernel 'twice': CUDA_ERROR_INVALID_VALUE"));

  Kernel greedy = KernelOf("twice", {0}, 1, 2);
  greedy.shared_bytes = 1 << 20;
  const absl::Status shared = RunOne(*module, greedy, {x.get()});
  EXPECT_EQ(shared.code(), absl::StatusCode::kFailedPrecondition) << shared;
  EXPECT_THAT(shared.message(), HasSubstr("kernel 'twice' needs 1048576 bytes of shared memory; "));

  const absl::Status missing = RunOne(*module, KernelOf("other", {}, 1), {});
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument) << missing;
  EXPECT_EQ(missing.message(), "the kernel binary has no function 'other'");

  Program damaged;
  damaged.target = CudaTarget();
  EXPECT_EQ(device_->Load(damaged).status().message(), "loading a kernel binary: it is empty");
  damaged.binary = "this is neither a cubin nor PTX";
  const absl::Status load = device_->Load(damaged).status();
  EXPECT_THAT(load.code(), ::testing::AnyOf(absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition))
      << load;

  const absl::Status memory = device_->Allocate(int64_t{1} << 50).status();
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted) << memory;
  EXPECT_THAT(memory.message(), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"));

  ASSERT_TRUE(RunOne(*module, KernelOf("twice", {0}, 1, 2), {x.get()}).ok());
  EXPECT_THAT(ReadFloats(*device_, *x, 2), Each(2.0f));
}

TEST_F(CudaDeviceTest, BinariesOfAnotherArchitectureAreRefused) {
  const std::string other = device_->facts().arch == "sm_80" ? "sm_90" : "sm_80";
  const absl::StatusOr<Program> program = CudaProgram(kSource, other);
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::Status load = device_->Load(*program).status();
  EXPECT_EQ(load.code(), absl::StatusCode::kFailedPrecondition) << load;
}

TEST_F(CudaDeviceTest, TargetsThatAreNotHereAreRefused) {
  Target target = CudaTarget();
  target.arch = device_->facts().arch == "sm_70" ? "sm_80" : "sm_70";
  const absl::Status arch = OpenDevice(target).status();
  EXPECT_EQ(arch.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(arch.message(), "target 'cuda -arch=" + target.arch + "': the GPU here (" + device_->facts().model +
                                ") is " + device_->facts().arch +
                                "; leave -arch out, or give -arch=" + device_->facts().arch);
  target = Target::Parse("cuda -arch=" + device_->facts().arch + "a").value();
  EXPECT_TRUE(OpenDevice(target).ok()) << "the variant with a letter is the same device";
  target = CudaTarget();
  target.device = 99;
  EXPECT_THAT(OpenDevice(target).status().message(), HasSubstr("here; give a -device from 0 to "));
}

TEST_F(CudaDeviceTest, TwoHandlesOfOneDeviceWorkTogether) {
  auto second = OpenDevice(CudaTarget());
  ASSERT_TRUE(second.ok()) << second.status();
  auto module = LoadSource(kSource);
  auto x = Floats({3, 3});
  second->reset();  // must not take the context away
  ASSERT_TRUE(RunOne(*module, KernelOf("twice", {0}, 1, 2), {x.get()}).ok());
  EXPECT_THAT(ReadFloats(*device_, *x, 2), Each(6.0f));
}

TEST_F(CudaDeviceTest, FlushCacheLeavesBuffersAlone) {
  auto x = Floats({5});
  ASSERT_TRUE(device_->FlushCache().ok());
  ASSERT_TRUE(device_->FlushCache().ok());
  EXPECT_EQ(ReadFloats(*device_, *x, 1)[0], 5);
}

// Opens the device, runs the kernel, and exits with 0 if it ended, and everything after it, as Aborted with `name`.
void FaultInChild(const std::string& kernel, const std::string& name) {
  auto device = OpenDevice(CudaTarget()).value();
  auto module = device->Load(CudaProgram(kSource, device->facts().arch).value()).value();
  auto where = device->Allocate(64).value();
  const uint64_t nowhere = 0x10;
  if (!device->CopyIn(*where, &nowhere, 8).ok()) std::exit(2);
  auto plan = device->MakePlan({{module.get(), KernelOf(kernel, {0}, 1, 32), {where.get()}}}).value();
  const absl::Status run = plan->Run();
  std::fprintf(stderr, "%s\n", run.ToString().c_str());
  if (run.code() != absl::StatusCode::kAborted || std::string(run.message()).find(name) == std::string::npos)
    std::exit(3);
  float value = 0;
  if (device->CopyOut(&value, *where, 4).code() != absl::StatusCode::kAborted) std::exit(4);
  if (plan->Time(1).status().code() != absl::StatusCode::kAborted) std::exit(5);
  plan.reset();
  module.reset();
  where.reset();
  device.reset();  // cleaning up after a fault must not hang or crash
  std::exit(0);
}

TEST_F(CudaDeviceTest, FaultsOfAKernelAreAborted) {
  device_.reset();
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a forked child could not use the driver
  EXPECT_EXIT(FaultInChild("wild", "CUDA_ERROR_ILLEGAL_ADDRESS"), ::testing::ExitedWithCode(0),
              "running kernels: CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EXIT(FaultInChild("misaligned", "CUDA_ERROR_MISALIGNED_ADDRESS"), ::testing::ExitedWithCode(0),
              "running kernels: CUDA_ERROR_MISALIGNED_ADDRESS");
}

}  // namespace
}  // namespace diapason
