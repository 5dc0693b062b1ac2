#include "compiler/lower/loop_values.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 to 2: x, p = x + 1, y = p + p.
ComputeDag TwoSums(std::vector<int64_t> shape) {
  DagBuilder b;
  const int x = b.Placeholder("x", shape);
  const int p = b.Compute("p", shape, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  const int y = b.Compute("y", shape, [&](auto& i) { return Add(b.At(p, i), b.At(p, i)); });
  return b.Build({y}).value();
}

TEST(LoopValues, PiecesOfALoopCoverItsAxisOnce) {
  testing::TestKernel test(TwoSums({10}), {testing::SplitStep(2, 0, {4})}, 2);
  const StageValues& y = test.Prepared(2);
  ASSERT_EQ(y.leaf.size(), 2);
  std::set<int64_t> seen;
  for (int64_t outer = 0; outer < 3; ++outer)
    for (int64_t inner = 0; inner < 4; ++inner)
      seen.insert(testing::NumberAt(y.axis[0], {{y.leaf[0], outer}, {y.leaf[1], inner}}));
  EXPECT_EQ(seen.size(), 12);
  EXPECT_EQ(*seen.begin(), 0);
  EXPECT_EQ(*seen.rbegin(), 11);
}

TEST(LoopValues, AFusedLoopGivesItsParts) {
  testing::TestKernel test(TwoSums({3, 5}), {testing::FuseStep(2, {0, 1})}, 2);
  const StageValues& y = test.Prepared(2);
  ASSERT_EQ(y.leaf.size(), 1);
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(testing::NumberAt(y.axis[0], {{y.leaf[0], i}}), i / 5);
    EXPECT_EQ(testing::NumberAt(y.axis[1], {{y.leaf[0], i}}), i % 5);
  }
}

TEST(LoopValues, BlocksInGroupsComeToEachTileOnce) {
  const Step group{StepKind::kGroupBlocks, 2, {2}, {Factor::Of(4)}, -1, {}};
  testing::TestKernel test(TwoSums({6, 4}),
                           {testing::FuseStep(2, {0, 1}), testing::AnnotateStep(2, 2, Annotation::kBlockX), group}, 2,
                           "cuda -arch=sm_80");
  const StageValues& y = test.Prepared(2);
  ASSERT_EQ(y.blocks.size(), 2);
  std::vector<std::pair<int64_t, int64_t>> order;
  for (int64_t block = 0; block < 24; ++block)
    order.emplace_back(testing::NumberAt(y.blocks[0].second, {{y.leaf[0], block}}),
                       testing::NumberAt(y.blocks[1].second, {{y.leaf[0], block}}));
  // Down the columns of four rows, then of the two that are left.
  EXPECT_EQ(order[3], std::pair(int64_t{3}, int64_t{0}));
  EXPECT_EQ(order[4], std::pair(int64_t{0}, int64_t{1}));
  EXPECT_EQ(order[16], std::pair(int64_t{4}, int64_t{0}));
  EXPECT_EQ(order[18], std::pair(int64_t{4}, int64_t{1}));
  EXPECT_EQ(std::set(order.begin(), order.end()).size(), 24);
}

TEST(LoopValues, AStageInsideAnotherStandsAtTheElementsThatItNeeds) {
  testing::TestKernel test(TwoSums({8}), {testing::SplitStep(2, 0, {4}), testing::ComputeAtStep(1, 2, 1)}, 2);
  const StageValues& y = test.Prepared(2);
  const StageValues& p = test.Prepared(1);
  EXPECT_EQ(testing::NumberAt(p.axis[0], {{y.leaf[0], 1}, {p.leaf[0], 3}}), 7);
  EXPECT_EQ(testing::NumberAt(p.compact[0], {{y.leaf[0], 1}, {p.leaf[0], 3}}), 3);
}

TEST(LoopValues, InnerLoopsAreUnrolledWithinTheLimit) {
  for (const auto& [limit, outer, inner] : {std::tuple(8, 1, 1), {7, 0, 1}, {1, 0, 0}}) {
    testing::TestKernel test(TwoSums({4, 2}), {testing::NumberStep(StepKind::kUnroll, 2, limit)}, 2);
    EXPECT_EQ(test.Prepared(2).unrolled,
              (std::vector<uint8_t>{static_cast<uint8_t>(outer), static_cast<uint8_t>(inner)}))
        << limit;
  }
}

}  // namespace
}  // namespace diapason
