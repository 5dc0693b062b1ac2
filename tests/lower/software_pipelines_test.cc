#include "compiler/lower/software_pipelines.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Sums of the rows of x, in blocks, eight terms at a time from a copy in shared memory with so many slots.
struct Pipelined {
  explicit Pipelined(int32_t slots) {
    DagBuilder b;
    const int x = b.Placeholder("x", {4, 64});
    const int y = b.Reduce("y", {4}, {64}, Combiner::kSum, [&](auto& i, auto& r) { return b.At(x, {i[0], r[0]}); });
    const int copy = 2;
    const std::vector<Step> steps{testing::AnnotateStep(y, 0, Annotation::kBlockX),
                                  testing::SplitStep(y, 1, {8}),
                                  {StepKind::kCacheRead, x, {}, {}, -1, {static_cast<int>(Memory::kShared), y}},
                                  testing::ComputeAtStep(copy, y, 2),
                                  testing::NumberStep(StepKind::kPipeline, y, slots)};
    test = std::make_unique<testing::TestKernel>(b.Build({y}).value(), steps, y, "cuda -arch=sm_90");
    names = std::make_unique<testing::NamesOfStages>(test->kernel());
    copies = std::make_unique<SharedCopies>(&test->parts(), names.get());
    attached = std::make_unique<AttachedStages>(&test->nest(), &copies->bulk, &copies->core_matrices, names.get());
    groups = std::make_unique<GroupPipelines>(&test->nest(), attached.get(), copies.get(), names.get(), &handover);
    pipelines =
        std::make_unique<SoftwarePipelines>(&test->nest(), attached.get(), copies.get(), groups.get(), names.get());
    test->Prepared(y);
  }
  std::unique_ptr<testing::TestKernel> test;
  std::unique_ptr<testing::NamesOfStages> names;
  std::unique_ptr<SharedCopies> copies;
  std::unique_ptr<AttachedStages> attached;
  GroupHandover handover;
  std::unique_ptr<GroupPipelines> groups;
  std::unique_ptr<SoftwarePipelines> pipelines;
};

TEST(SoftwarePipelines, AStepStartsTheCopiesOfALaterOne) {
  Pipelined of(3);
  size_t last = 0;
  EXPECT_EQ(of.test->kernel().PipelineSlots(1, 1, &last), 3);
  EXPECT_EQ(last, 1);
  of.pipelines->NameSlots(1);
  const Stmt nest =
      of.pipelines->Emit(1, {.first = 1, .last = 1, .end = 2, .slots = 3}, [] { return MakeComment("terms"); });
  EXPECT_EQ(ToString(nest), R"(for step_y in 10 (unroll 1):
  wait until 1 unfinished
  barrier
  if step_y < 8:
    let fill = floormod(step_y, 3)
    let y_r0_0 = min(step_y, 7)
    # x.shared
  commit
  if 2 <= step_y:
    let use = floormod(step_y + 1, 3)
    let y_r0_0 = max(step_y - 2, 0)
    # terms
)");
}

TEST(SoftwarePipelines, EachIterationHasASlotToFillAndReadsItsOwn) {
  Pipelined of(2);
  of.pipelines->NameSlots(1);
  const StageValues& copy = of.test->nest().stages[2];
  ASSERT_TRUE(copy.write_slot && copy.read_slot);
  EXPECT_NE(copy.write_slot, copy.read_slot);
}

TEST(SoftwarePipelines, ALoopWithoutCopiesIsNone) {
  Pipelined of(1);
  size_t last = 0;
  EXPECT_EQ(of.test->kernel().PipelineSlots(1, 1, &last), 1);
  EXPECT_EQ(of.pipelines->Emit(1, {.first = 1, .last = 1, .end = 2, .slots = 2}, [] { return MakeBarrier(); }),
            nullptr);
  EXPECT_FALSE(of.test->nest().status.ok());
}

}  // namespace
}  // namespace diapason
