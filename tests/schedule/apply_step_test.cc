#include "compiler/schedule/apply_step.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace diapason {
namespace {

constexpr int kX = 0, kW = 1, kSum = 2, kRelu = 3;

// x[4, 8], w[8] (a constant) -> s[4] = sum of x * w -> r[4] = max(s, 0).
ComputeDag SumAndRelu() {
  DagBuilder b;
  const int x = b.Placeholder("x", {4, 8}), w = b.Constant("w", {8});
  const int s = b.Reduce("s", {4}, {8}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0]}));
  });
  const int r = b.Compute("r", {4}, [&](const auto& i) { return Max(b.At(s, i), FloatImm(0)); });
  return b.Build({r}).value();
}

class ApplyStepTest : public testing::Test {
 protected:
  using Apply = absl::Status (*)(ScheduledStages&, const Step&);
  void Do(Apply apply, const Step& step) { EXPECT_EQ(apply(stages_, step), absl::OkStatus()); }
  std::string Refusal(Apply apply, const Step& step) { return std::string(apply(stages_, step).message()); }

  ScheduledStages stages_{SumAndRelu()};
};

TEST_F(ApplyStepTest, PiecesOfASplitTakeItsPlace) {
  Do(ApplySplit, {StepKind::kSplit, kSum, {1}, {Factor::Of(4), Factor::Of(2)}});
  const StageState& sum = stages_.at(kSum);
  EXPECT_EQ(sum.order, (std::vector<int>{0, 2, 3, 4}));
  EXPECT_EQ(sum.loops[1].pieces, (std::vector<int>{2, 3, 4}));
  EXPECT_FALSE(sum.loops[1].is_leaf());
  EXPECT_EQ(sum.loops[3].factor.value, 4);
  EXPECT_TRUE(sum.loops[4].reduce);
  EXPECT_EQ(Refusal(ApplySplit, {StepKind::kSplit, kSum, {1}, {Factor::Of(2)}}),
            "stage s: only a leaf loop can be split");
}

TEST_F(ApplyStepTest, OnlyAdjacentLoopsOfAKindAreFused) {
  Do(ApplySplit, {StepKind::kSplit, kSum, {0}, {Factor::Of(2)}});  // order: 2, 3, 1
  EXPECT_EQ(Refusal(ApplyFuse, {StepKind::kFuse, kSum, {3, 1}}),
            "stage s: a spatial and a reduce loop cannot be fused");
  EXPECT_EQ(Refusal(ApplyFuse, {StepKind::kFuse, kSum, {3, 2}}), "stage s: only adjacent leaf loops can be fused");
  Do(ApplyFuse, {StepKind::kFuse, kSum, {2, 3}});
  EXPECT_EQ(stages_.at(kSum).order, (std::vector<int>{4, 1}));
  EXPECT_EQ(stages_.at(kSum).loops[2].fused_into, 4);
}

TEST_F(ApplyStepTest, ANewOrderNamesEachLoopOnce) {
  EXPECT_EQ(Refusal(ApplyReorder, {StepKind::kReorder, kSum, {0, 0}}),
            "stage s: a new order must name each leaf loop once");
  Do(ApplyReorder, {StepKind::kReorder, kSum, {1, 0}});
  EXPECT_EQ(stages_.at(kSum).order, (std::vector<int>{1, 0}));
}

TEST_F(ApplyStepTest, NumbersSayHowAStageRuns) {
  Do(ApplyNumber, {StepKind::kUnroll, kSum, {}, {Factor::Of(16)}});
  Do(ApplyNumber, {StepKind::kPipeline, kSum, {}, {Factor::Of(3)}});
  EXPECT_EQ(stages_.at(kSum).unroll.value, 16);
  EXPECT_EQ(stages_.at(kSum).pipeline.value, 3);
  EXPECT_EQ(Refusal(ApplyNumber, {StepKind::kUnroll, kSum}), "stage s: one number is needed");
}

TEST_F(ApplyStepTest, AStageIsComputedAtALoopOfAnother) {
  EXPECT_EQ(Refusal(ApplyComputeAt, {StepKind::kComputeAt, kRelu, {0}, {Factor{0}}, kSum}),
            "stage r: an input or output cannot be computed at a loop");
  Do(ApplyComputeAt, {StepKind::kComputeAt, kSum, {0}, {Factor{0}}, kRelu});
  EXPECT_TRUE(stages_.IsComputedAt(kSum, kRelu, 0));
  EXPECT_EQ(stages_.at(kSum).memory, Memory::kLocal);
  Do(ApplySetScope, {StepKind::kSetScope, kSum, {}, {}, -1, {static_cast<int32_t>(Memory::kShared)}});
  EXPECT_EQ(stages_.at(kSum).memory, Memory::kShared);
  EXPECT_EQ(Refusal(ApplySetScope, {StepKind::kSetScope, kSum, {}, {}, -1, {9}}), "stage s: one scope is needed");
}

TEST_F(ApplyStepTest, ReductionsAndOutputsAreNotInlined) {
  const std::string why = ": an input, an output or a reduction cannot be inlined";
  EXPECT_EQ(Refusal(ApplyInline, {StepKind::kInline, kSum}), "stage s" + why);
  EXPECT_EQ(Refusal(ApplyInline, {StepKind::kInline, kRelu}), "stage r" + why);
  EXPECT_EQ(Refusal(ApplyInline, {StepKind::kInline, kX}), "stage x" + why);
}

TEST_F(ApplyStepTest, AWriteCacheTakesOverTheReduction) {
  Do(ApplyCacheWrite, {StepKind::kCacheWrite, kSum, {}, {}, -1, {static_cast<int32_t>(Memory::kLocal)}});
  ASSERT_EQ(stages_.size(), 5);
  EXPECT_EQ(stages_.at(4).op.name, "s.acc");
  EXPECT_TRUE(stages_.at(4).op.reduces());
  EXPECT_FALSE(stages_.at(kSum).op.reduces());
  EXPECT_EQ(stages_.Producers(kSum), std::vector<int>{4});
}

TEST_F(ApplyStepTest, AReadCacheServesTheReadersThatItNames) {
  EXPECT_EQ(Refusal(ApplyCacheRead, {StepKind::kCacheRead, kX, {}, {}, -1, {1, kRelu}}),
            "stage x: stage 3 does not read it");
  Do(ApplyCacheRead, {StepKind::kCacheRead, kX, {}, {}, -1, {1, kSum}});
  EXPECT_EQ(stages_.at(4).op.name, "x.shared");
  EXPECT_EQ(stages_.Producers(kSum), (std::vector<int>{4, kW}));
}

TEST_F(ApplyStepTest, RfactorReducesPartsAndThenTheParts) {
  Do(ApplySplit, {StepKind::kSplit, kSum, {1}, {Factor::Of(2)}});
  Do(ApplyRfactor, {StepKind::kRfactor, kSum, {2}});
  const Stage &partial = stages_.at(4).op, &sum = stages_.at(kSum).op;
  EXPECT_EQ(partial.name, "s.rf");
  ASSERT_EQ(partial.axes.size(), 2u);
  EXPECT_EQ(partial.axes[0].extent, 4);
  EXPECT_EQ(partial.reduce_axes[0].extent, 2);
  EXPECT_EQ(sum.reduce_axes[0].extent, 4);
}

TEST_F(ApplyStepTest, OnlyConstantsArePacked) {
  const std::vector<Factor> factors = {Factor::Of(4)};
  EXPECT_EQ(Refusal(ApplyPack, {StepKind::kPack, kSum, {}, factors, kX, {0, 1}}),
            "stage s: only a constant can be packed");
  Do(ApplyPack, {StepKind::kPack, kSum, {}, factors, kW, {1, 0}});
  EXPECT_EQ(stages_.at(4).op.name, "w.packed");
  EXPECT_TRUE(stages_.at(4).prologue);
  EXPECT_EQ(stages_.at(4).layout_order, (std::vector<int>{1, 0}));
  EXPECT_EQ(stages_.Producers(kSum), (std::vector<int>{kX, 4}));
}

TEST_F(ApplyStepTest, ALibraryMustExist) {
  EXPECT_EQ(Refusal(ApplyLibrary, {StepKind::kLibrary, kRelu, {}, {Factor{0}}, kSum, {99, 0}}),
            "stage r: there is no library 99");
}

}  // namespace
}  // namespace diapason
