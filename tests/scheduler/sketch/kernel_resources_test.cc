#include "scheduler/sketch/kernel_resources.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

constexpr int kX = 0, kY = 1, kCopy = 2;

Step Annotated(int loop, Annotation annotation) {
  return {StepKind::kAnnotate, kY, {loop}, {}, -1, {static_cast<int32_t>(annotation)}};
}

// y[64, 32] = x[64, 32] + 1: two blocks of 32 threads, each with a row, over a copy of the block's rows.
struct RowsByThreads {
  explicit RowsByThreads(Memory memory) : state(Dag()) {
    for (const Step& step : {Step{StepKind::kSplit, kY, {0}, {Factor::Of(32)}}, Annotated(2, Annotation::kBlockX),
                             Annotated(3, Annotation::kThreadX), Annotated(1, Annotation::kUnroll),
                             Step{StepKind::kCacheRead, kX, {}, {}, -1, {static_cast<int32_t>(memory), kY}},
                             Step{StepKind::kComputeAt, kCopy, {2}, {Factor{0}}, kY}})
      EXPECT_EQ(state.Apply(step), absl::OkStatus());
  }
  static ComputeDag Dag() {
    DagBuilder b;
    const int x = b.Placeholder("x", {64, 32});
    const int y = b.Compute("y", {64, 32}, [&](const auto& i) { return Add(b.At(x, i), FloatImm(1)); });
    return b.Build({y}).value();
  }
  KernelResources Count(ResourceCount::Role of_copy = {}) const {
    Bounds bounds;
    Skeleton(state).Infer({}, &bounds);
    ResourceCount count(state, TargetKind::kOpenCl, kY);
    count.Add(kY, bounds.stages[kY], {});
    count.Add(kCopy, bounds.stages[kCopy], of_copy);
    return count.Total();
  }
  State state;
};

TEST(KernelResources, LoopsSayBlocksThreadsAndWhatIsUnrolled) {
  const KernelResources kernel = RowsByThreads(Memory::kShared).Count();
  EXPECT_EQ(kernel.root, kY);
  EXPECT_EQ(kernel.blocks, 2);
  EXPECT_EQ(kernel.threads, 32);
  EXPECT_EQ(kernel.unrolled, 32);
  EXPECT_EQ(kernel.cluster, 1);
}

TEST(KernelResources, CopiesAreOfTheBlockOrOfAThread) {
  const KernelResources shared = RowsByThreads(Memory::kShared).Count(), local = RowsByThreads(Memory::kLocal).Count();
  EXPECT_EQ(shared.shared_bytes, 32 * 32 * 4);
  EXPECT_EQ(shared.local_elements, 0);
  EXPECT_EQ(local.shared_bytes, 0);
  EXPECT_GT(local.local_elements, 0);
  EXPECT_EQ(local.local_bytes, local.local_elements * 4);
}

// ptxas counts with 65536 / (threads + producers) registers: 128 of a thread at 512, and 168 at 384.
TEST(KernelResources, ProducersLeaveRegistersForAProduct) {
  const Target cuda = Target::Parse("cuda -arch=sm_90").value();
  const auto fits = [&](int64_t threads, int64_t producers, int64_t sums) {
    return WithinLimits({.threads = threads, .producers = producers, .local_elements = sums}, cuda, DefaultFacts(cuda));
  };
  EXPECT_TRUE(fits(256, 128, 128));
  EXPECT_TRUE(fits(384, 0, 128));
  EXPECT_FALSE(fits(384, 128, 128));
  EXPECT_TRUE(fits(384, 128, 96));
}

TEST(KernelResources, AMaximumThatIsCarriedAlsoKeepsHowMuchItGrew) {
  EXPECT_EQ(RowsByThreads(Memory::kShared).Count({.is_maximum = true}).shared_bytes, 2 * 32 * 32 * 4);
}

TEST(KernelResources, PartsThatAreSummedLieWhereTheOperandsWere) {
  const RowsByThreads rows(Memory::kShared);
  Bounds bounds;
  Skeleton(rows.state).Infer({}, &bounds);
  ResourceCount count(rows.state, TargetKind::kOpenCl, kY);
  count.Add(kCopy, bounds.stages[kCopy], {});
  count.Add(kCopy, bounds.stages[kCopy], {.holds_parts = true});
  EXPECT_EQ(count.Total().shared_bytes, 32 * 32 * 4);
}

TEST(KernelResources, EachLimitIsLookedAt) {
  const Target gpu = Target::Parse("cuda -arch=sm_90").value(), cpu = Target::Parse("cpu").value();
  const DeviceFacts facts = DefaultFacts(gpu);
  const KernelResources fine{.blocks = 100, .threads = 256, .shared_bytes = 1024, .local_elements = 64};
  EXPECT_TRUE(WithinLimits(fine, gpu, facts));
  const auto refused = [&](void (*change)(KernelResources&)) {
    KernelResources kernel = fine;
    change(kernel);
    return !WithinLimits(kernel, gpu, facts);
  };
  EXPECT_TRUE(refused([](KernelResources& k) { k.threads = 2048; }));
  EXPECT_TRUE(refused([](KernelResources& k) { k.shared_bytes = 1 << 20; }));
  EXPECT_TRUE(refused([](KernelResources& k) { k.local_elements = 200; }));
  EXPECT_TRUE(refused([](KernelResources& k) { k.cluster = 32; }));
  EXPECT_TRUE(refused([](KernelResources& k) { k.unrolled = 1000; }));
  EXPECT_TRUE(refused([](KernelResources& k) { k.blocks = int64_t{1} << 31; }));
  EXPECT_TRUE(refused([](KernelResources& k) { k.local_elements = 150, k.threads = 1024; }));  // registers of a core
  KernelResources stack = fine;
  stack.local_bytes = kStackBytes;
  EXPECT_TRUE(WithinLimits(stack, cpu, facts));
  ++stack.local_bytes;
  EXPECT_FALSE(WithinLimits(stack, cpu, facts));
}

}  // namespace
}  // namespace diapason
