#include "compiler/graph/long_reductions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "compiler/tensor/interpret.h"
#include "testing.h"

namespace diapason {
namespace {

// The sum of a tensor over some axes.
ComputeDag SumOver(const Ints& shape, const std::vector<int>& axes, Combiner combiner = Combiner::kSum,
                   DType dtype = DType::kFloat32) {
  DagBuilder b;
  const int x = b.Placeholder("x", shape, dtype);
  Ints rows, extents;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = std::count(axes.begin(), axes.end(), static_cast<int>(d)) > 0;
    (reduced ? extents : rows).push_back(shape[d]);
  }
  const int sum = b.Reduce("sum", rows, extents, combiner, [&](const auto& i, const auto& r) {
    std::vector<Expr> at;
    size_t row = 0, term = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      at.push_back(std::count(axes.begin(), axes.end(), static_cast<int>(d)) > 0 ? r[term++] : i[row++]);
    return b.At(x, at);
  });
  return b.Build({sum}).value();
}

// Small numbers that float32 adds exactly, so that every order gives the same sum.
Array SmallIntegers(const Ints& shape) {
  Array array(DType::kFloat32, shape);
  for (int64_t i = 0, n = array.elements(); i < n; ++i) array.set(i, static_cast<double>(i * 7919 % 13) - 6);
  return array;
}

int64_t LongestChain(const ComputeDag& dag) {
  int64_t longest = 0;
  for (const Stage& stage : dag.stages()) longest = std::max(longest, stage.terms());
  return longest;
}

TEST(LongReductions, AreSumsOfShortOnes) {
  for (const auto& [shape, axes] : std::vector<std::pair<Ints, std::vector<int>>>{{{1 << 16}, {0}},
                                                                                  {{99991}, {0}},
                                                                                  {{2, 40000}, {1}},
                                                                                  {{40000, 2}, {0}},
                                                                                  {{17, 3, 1999}, {0, 2}},
                                                                                  {{260, 260}, {0, 1}},
                                                                                  {{30, 30, 30}, {0, 1, 2}}}) {
    const ComputeDag whole = SumOver(shape, axes);
    const absl::StatusOr<ComputeDag> split = SplitLongReductions(whole);
    ASSERT_TRUE(split.ok()) << split.status();
    SCOPED_TRACE(split->ToString());
    EXPECT_LE(LongestChain(*split), 1024);
    EXPECT_EQ(CheckAccesses(*split), absl::OkStatus());
    ASSERT_EQ(split->inputs().size(), 1u);
    const std::map<int, Array> values{{0, SmallIntegers(shape)}};
    const auto want = Interpret(whole, values), got = Interpret(*split, values);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    ExpectNear((*got)[0], (*want)[0], 0);
  }
}

TEST(LongReductions, FindTheLargestAndTheSmallestOfParts) {
  for (const Combiner combiner : {Combiner::kMax, Combiner::kMin}) {
    for (const DType dtype : {DType::kFloat32, DType::kInt32, DType::kUint8}) {
      for (const auto& [shape, axes] : std::vector<std::pair<Ints, std::vector<int>>>{
               {{128, 768}, {0, 1}}, {{99991}, {0}}, {{40000, 2}, {0}}, {{17, 3, 1999}, {0, 2}}}) {
        const ComputeDag whole = SumOver(shape, axes, combiner, dtype);
        const ComputeDag split = SplitLongReductions(whole).value();
        SCOPED_TRACE(split.ToString());
        EXPECT_LE(LongestChain(split), 1024);
        EXPECT_EQ(CheckAccesses(split), absl::OkStatus());
        Array x(dtype, shape);  // all on one side of zero, so that an element too many would be seen
        for (int64_t i = 0, n = x.elements(); i < n; ++i) {
          const double value = 3 + static_cast<double>(i * 7919 % 101);
          x.set(i, combiner == Combiner::kMax && dtype != DType::kUint8 ? -value : value);
        }
        const std::map<int, Array> values{{0, std::move(x)}};
        ExpectNear(Interpret(split, values).value()[0], Interpret(whole, values).value()[0], 0);
      }
    }
  }
}

TEST(LongReductions, OfOddLengthReadNothingBehindTheirLastTerm) {
  const ComputeDag split = SplitLongReductions(SumOver({1 << 20 | 1}, {0})).value();
  EXPECT_EQ(CheckAccesses(split), absl::OkStatus()) << split.ToString();
}

TEST(LongReductions, OthersStayAsTheyAre) {
  for (const ComputeDag& dag : {SumOver({1 << 14}, {0}), SumOver({1 << 14}, {0}, Combiner::kMax),
                                SumOver({1 << 16}, {0}, Combiner::kSum, DType::kInt64)})
    EXPECT_EQ(SplitLongReductions(dag)->ToString(), dag.ToString());
}

// Schedules share rows among lanes and threads, so that only much longer ones are split.
TEST(LongReductions, RowsOfANormalizationStayWhole) {
  const auto softmax = [](int64_t columns) {
    GraphBuilder b;
    const Network network = b.Out({b.Op("softmax", {b.In({2, columns})}, {{"axis", int64_t{1}}})});
    return PartitionNetwork(network).value().tasks[0].dag;
  };
  EXPECT_EQ(LongestChain(softmax(1 << 16)), 1 << 16);
  int sums = 0;
  const ComputeDag longer = softmax(1 << 21);
  for (const Stage& stage : longer.stages()) sums += stage.combiner == Combiner::kSum;
  EXPECT_GT(sums, 1);
}

TEST(LongReductions, OfANetworkGetTasksWithShortOnes) {
  GraphBuilder b;
  const int mean = b.Op("reduce_mean", {b.In({1, 4, 256, 256})}, {{"axes", Ints{2, 3}}});
  const Network network = b.Out({b.Op("relu", {mean})});
  const Partition partition = PartitionNetwork(network).value();
  ASSERT_EQ(partition.tasks.size(), 1u);
  EXPECT_LE(LongestChain(partition.tasks[0].dag), 1024);
  ExpectSameResults(network, network);
}

}  // namespace
}  // namespace diapason
