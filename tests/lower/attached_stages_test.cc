#include "compiler/lower/attached_stages.h"

#include <gtest/gtest.h>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 to 3: x, p = x + 1, q = p * 2, y = p + q; in blocks of rows, with p and q in these memories at the block's
// loop.
class AttachedStagesTest : public ::testing::Test {
 protected:
  void Place(Memory p, Memory q, const std::vector<Step>& more = {}) {
    DagBuilder b;
    const int x = b.Placeholder("x", {8, 32});
    b.Compute("p", {8, 32}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
    b.Compute("q", {8, 32}, [&](auto& i) { return Mul(b.At(1, i), FloatImm(2)); });
    const int y = b.Compute("y", {8, 32}, [&](auto& i) { return Add(b.At(1, i), b.At(2, i)); });
    std::vector<Step> steps{testing::AnnotateStep(y, 0, Annotation::kBlockX), testing::ComputeAtStep(2, y, 0),
                            testing::ComputeAtStep(1, y, 0), testing::MemoryStep(1, p), testing::MemoryStep(2, q)};
    steps.insert(steps.end(), more.begin(), more.end());
    test_ = std::make_unique<testing::TestKernel>(b.Build({y}).value(), steps, y, "cuda -arch=sm_90");
    test_->Prepared(y);
    names_ = std::make_unique<NamesOfStages>(test_->kernel());
    bulk_ = std::make_unique<BulkCopies>(&test_->nest());
    matrices_ = std::make_unique<CoreMatrixCopies>(&test_->parts(), names_.get());
    attached_ = std::make_unique<AttachedStages>(&test_->nest(), bulk_.get(), matrices_.get(), names_.get());
  }

  std::string Emitted() { return ToString(attached_->Emit(3, 0)); }

  using NamesOfStages = testing::NamesOfStages;
  std::unique_ptr<testing::TestKernel> test_;
  std::unique_ptr<NamesOfStages> names_;
  std::unique_ptr<BulkCopies> bulk_;
  std::unique_ptr<CoreMatrixCopies> matrices_;
  std::unique_ptr<AttachedStages> attached_;
};

TEST_F(AttachedStagesTest, StagesOfAThreadNeedNoBarrier) {
  Place(Memory::kLocal, Memory::kLocal);
  EXPECT_EQ(Emitted(), "# p\n# q\n");
}

TEST_F(AttachedStagesTest, WhatTheBlockSharesIsThereBehindABarrier) {
  Place(Memory::kShared, Memory::kLocal);
  EXPECT_EQ(Emitted(), "# p\nbarrier\n# q\n");
}

TEST_F(AttachedStagesTest, InALoopNobodyReadsWhatWasThereBefore) {
  Place(Memory::kShared, Memory::kLocal);
  test_->nest().serial_depth = 1;
  EXPECT_EQ(Emitted(), "barrier\n# p\nbarrier\n# q\n");
}

TEST_F(AttachedStagesTest, ASharedStageThatReadsAnotherComesInTurn) {
  Place(Memory::kShared, Memory::kShared);
  EXPECT_EQ(Emitted(), "# p\nbarrier\n# q\nbarrier\n");
  EXPECT_EQ(ToString(attached_->EmitInTurn({1, 2}, /*after_barrier=*/true)), "# p\nbarrier\n# q\nbarrier\n");
  test_->nest().serial_depth = 1;
  EXPECT_EQ(ToString(attached_->EmitInTurn({1, 2}, /*after_barrier=*/false)), "barrier\n# p\nbarrier\n# q\nbarrier\n");
}

TEST_F(AttachedStagesTest, AnAsynchronousCopyIsWaitedForWhereItIsRead) {
  Place(Memory::kShared, Memory::kShared, {{StepKind::kAsyncCopy, 1, {}, {}, -1, {}}});
  EXPECT_EQ(Emitted(), "# p\ncommit\nwait until 0 unfinished\nbarrier\n# q\nbarrier\n");
}

}  // namespace
}  // namespace diapason
