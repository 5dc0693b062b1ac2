#include "scheduler/sketch/stage_facts.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

// x[2, 16, 32], w[2, 32, 8] -> p = x * w (a batched product) -> r = max(p, 0) -> e = exp(r).
struct Product {
  Product() : state(Dag()) {}
  static ComputeDag Dag() {
    DagBuilder b;
    const int x = b.Placeholder("x", {2, 16, 32}), w = b.Placeholder("w", {2, 32, 8});
    const int p = b.Reduce("p", {2, 16, 8}, {32}, Combiner::kSum, [&](const auto& i, const auto& k) {
      return Mul(b.At(x, {i[0], i[1], k[0]}), b.At(w, {i[0], k[0], i[2]}));
    });
    const int r = b.Compute("r", {2, 16, 8}, [&](const auto& i) { return Max(b.At(p, i), FloatImm(0)); });
    const int e = b.Compute("e", {2, 16, 8}, [&](const auto& i) { return Call("exp", {b.At(r, i)}); });
    return b.Build({e}).value();
  }
  static constexpr int kProduct = 2, kRelu = 3, kExp = 4;
  State state;
};

TEST(StageFacts, AxesAreNumberedSpatialFirst) {
  const Product p;
  EXPECT_EQ(SpatialAxes(p.state, Product::kProduct), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(ReduceAxes(p.state, Product::kProduct), std::vector<int>{3});
  EXPECT_EQ(LongestReduceAxis(p.state, Product::kProduct), 3);
  EXPECT_EQ(LongestReduceAxis(p.state, Product::kRelu), -1);
  EXPECT_EQ(LastLoop(p.state, Product::kProduct), 3);
}

TEST(StageFacts, OperandsThatAreReusedCallForTiles) {
  const Product p;
  EXPECT_TRUE(NeedsTiling(p.state, Product::kProduct));
  EXPECT_FALSE(NeedsTiling(p.state, Product::kRelu));
}

TEST(StageFacts, WhatIsMovedRunsAlongMemoryByTheTensorThatIsRead) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4, 8, 16}), y = b.Placeholder("y", {4, 16});
  const int joined = b.Compute("joined", {4, 9, 16}, [&](const auto& i) {
    return Select(Lt(i[1], IntImm(8)), b.At(x, i), b.At(y, {i[0], i[2]}));
  });
  const int turned = b.Compute("turned", {16, 4, 9}, [&](const auto& i) { return b.At(joined, {i[1], i[2], i[0]}); });
  const int sum = b.Compute("sum", {16, 4}, [&](const auto& i) {
    return Add(b.At(turned, {i[0], i[1], IntImm(0)}), FloatImm(1));
  });
  const State state(b.Build({sum}).value());
  EXPECT_EQ(DimensionAlongMemory(state, x), 2);
  EXPECT_EQ(DimensionAlongMemory(state, joined), 2);
  EXPECT_EQ(DimensionAlongMemory(state, turned), 0);
  EXPECT_EQ(DimensionAlongMemory(state, sum), 1);  // it does not only move elements
}

TEST(StageFacts, BatchAxesAreThoseThatEveryOperandUses) {
  const Product p;
  bool gemm_like = false;
  EXPECT_EQ(BatchAxes(p.state, Product::kProduct, &gemm_like), (std::vector<bool>{true, false, false}));
  EXPECT_TRUE(gemm_like);
  EXPECT_EQ(BatchAxes(p.state, Product::kRelu, &gemm_like), (std::vector<bool>{false, false, false}));
  EXPECT_FALSE(gemm_like);
}

TEST(StageFacts, AnElementwiseConsumerReadsPointByPointAndIsFree) {
  Product p;
  EXPECT_EQ(ElementwiseConsumer(p.state, Product::kProduct), Product::kRelu);
  EXPECT_EQ(ElementwiseConsumer(p.state, Product::kExp), -1);  // an output
  EXPECT_EQ(ElementwiseConsumer(p.state, 0), -1);              // read by a reduction
  EXPECT_FALSE(IsBound(p.state, Product::kRelu));
  ASSERT_TRUE(
      p.state.Apply({StepKind::kAnnotate, Product::kRelu, {0}, {}, -1, {static_cast<int32_t>(Annotation::kParallel)}})
          .ok());
  EXPECT_TRUE(IsBound(p.state, Product::kRelu));
  EXPECT_EQ(ElementwiseConsumer(p.state, Product::kProduct), -1);
}

TEST(StageFacts, TellsWhatIsComputedAndAtWhatCost) {
  const Product p;
  EXPECT_TRUE(IsInjective(p.state, Product::kRelu));
  EXPECT_FALSE(IsInjective(p.state, Product::kProduct));
  EXPECT_FALSE(IsInjective(p.state, 0));
  EXPECT_TRUE(IsExpensive(p.state, Product::kExp));
  EXPECT_FALSE(IsExpensive(p.state, Product::kRelu));
}

TEST(StageFacts, AWindowMovesOverTheLastDimension) {
  DagBuilder b;
  const int x = b.Placeholder("x", {10, 10});
  const int s = b.Reduce("s", {8, 8}, {3}, Combiner::kSum, [&](const auto& i, const auto& k) {
    return b.At(x, {i[0], Add(i[1], k[0])});
  });
  const State state(b.Build({s}).value());
  EXPECT_TRUE(IsRowOfWindow(state, s, 1));
  EXPECT_TRUE(IsRowOfWindow(state, s, 2));
  EXPECT_FALSE(IsRowOfWindow(state, s, 0));
}

}  // namespace
}  // namespace diapason
