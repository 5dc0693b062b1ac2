#include "compiler/schedule/stages.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace diapason {
namespace {

// x, w (a constant) -> a = w + w, s = sum of x * a, y = s + s; their ids are in this order.
ComputeDag Chain() {
  DagBuilder b;
  const int x = b.Placeholder("x", {4, 8}), w = b.Constant("w", {8});
  const int a = b.Compute("a", {8}, [&](const auto& i) { return Add(b.At(w, i), b.At(w, i)); });
  const int s = b.Reduce("s", {4}, {8}, Combiner::kSum, [&](const auto& i, const auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(a, {r[0]}));
  });
  const int y = b.Compute("y", {4}, [&](const auto& i) { return Add(b.At(s, i), b.At(s, i)); });
  return b.Build({y}).value();
}

TEST(ScheduledStages, BeginWithTheAxesOfEachStageAsItsLoops) {
  const ScheduledStages stages(Chain());
  ASSERT_EQ(stages.size(), 5);
  const StageState& sum = stages.at(3);
  ASSERT_EQ(sum.loops.size(), 2u);
  EXPECT_FALSE(sum.loops[0].reduce);
  EXPECT_TRUE(sum.loops[1].reduce);
  EXPECT_EQ(sum.order, (std::vector<int>{0, 1}));
  EXPECT_TRUE(stages.is_output(4));
  EXPECT_FALSE(stages.is_output(3));
}

TEST(ScheduledStages, KnowWhoReadsWhomOnceEach) {
  ScheduledStages stages(Chain());
  EXPECT_EQ(stages.Producers(3), (std::vector<int>{0, 2}));
  EXPECT_EQ(stages.Producers(2), std::vector<int>{1});
  EXPECT_EQ(stages.Producers(0), std::vector<int>{});
  EXPECT_EQ(stages.Consumers(2), std::vector<int>{3});
  stages.at(3).attach = StageState::Attach::kInlined;
  EXPECT_EQ(stages.Consumers(2), std::vector<int>{});
}

TEST(ScheduledStages, NewStagesGetTheNextIdAndANameOfTheirOwn) {
  ScheduledStages stages(Chain());
  Stage copy = stages.at(2).op;
  EXPECT_EQ(stages.Add(copy, 3), 5);
  EXPECT_EQ(stages.at(5).op.name, "a1");
  EXPECT_EQ(stages.UniqueName("a"), "a2");
  EXPECT_EQ(stages.UniqueName("b"), "b");
  EXPECT_EQ(stages.topological(), (std::vector<int>{0, 1, 2, 5, 3, 4}));
  EXPECT_EQ(stages.Add(std::move(copy), -1), 6);
  EXPECT_EQ(stages.topological().back(), 6);
}

TEST(ScheduledStages, MovesAStageInFrontOfAnotherOnlyWhereItIsBehind) {
  ScheduledStages stages(Chain());
  stages.MoveBefore(3, 1);
  EXPECT_EQ(stages.topological(), (std::vector<int>{0, 3, 1, 2, 4}));
  stages.MoveBefore(3, 4);
  EXPECT_EQ(stages.topological(), (std::vector<int>{0, 3, 1, 2, 4}));
}

TEST(ScheduledStages, WhatReadsConstantsAloneIsPrologueUnlessItIsAnOutput) {
  ScheduledStages stages(Chain());
  stages.at(3).op.body = Load(2, DType::kFloat32, {stages.at(3).op.reduce_axes[0].var});  // x is read no more
  stages.UpdatePrologue();
  std::vector<bool> prologue;
  for (const StageState& stage : stages.all()) prologue.push_back(stage.prologue);
  EXPECT_EQ(prologue, (std::vector<bool>{false, true, true, true, false}));
}

TEST(ScheduledStages, ResetLoopsForgetsWhatWasSaidOfThem) {
  ScheduledStages stages(Chain());
  StageState& sum = stages.at(3);
  sum.loops.emplace_back();
  sum.order = {1};
  sum.carry.loop = 0;
  ScheduledStages::ResetLoops(sum);
  EXPECT_EQ(sum.loops.size(), 2u);
  EXPECT_EQ(sum.order, (std::vector<int>{0, 1}));
  EXPECT_FALSE(sum.carry.is_carried());
}

}  // namespace
}  // namespace diapason
