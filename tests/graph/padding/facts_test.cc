#include "compiler/graph/padding/facts.h"

#include <limits>

#include "testing.h"

namespace diapason {
namespace {

TEST(PaddingFacts, AnAxisGrowsByAsManyElementsAsARowHas) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    const int x = b.In({batch, 3, 5});
    return b.Out({b.Op("reshape", {x}, {{"shape", Ints{batch * 3, 5}}})});
  });
  ASSERT_TRUE(two.facts.TakeInputs().ok());
  EXPECT_EQ(two.facts.of(two.facts.network().inputs[0]).blocks, (RowBlocks{1, 0, 0}));
  EXPECT_TRUE(two.facts.TakeNode(0).value());
  EXPECT_EQ(two.result(0).blocks, (RowBlocks{3, 0}));
  EXPECT_EQ(two.facts.TakeOutput(0).value(), (std::vector<GrowingAxis>{{0, 3}}));
}

TEST(PaddingFacts, NodesBesideTheSymbolNeedNoRule) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    const int x = b.In({batch, 3}), w = b.In({5, 3});
    return b.Out({x, b.Op("exp", {w})});
  });
  ASSERT_TRUE(two.facts.TakeInputs().ok());
  EXPECT_FALSE(two.facts.TakeNode(0).value());
  EXPECT_TRUE(two.result(0).range.finite());
}

TEST(PaddingFacts, TheMaskIsZeroWhereThereIsPadding) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    const int mask = b.n.AddInput("mask", {DType::kFloat32, {batch, 2}}), x = b.In({batch, 2});
    return b.Out({b.Op("mul", {x, mask})});
  });
  ASSERT_TRUE(two.facts.TakeInputs().ok());
  EXPECT_TRUE(two.facts.of(two.facts.network().inputs[0]).padded[0].is(0));
  EXPECT_EQ(two.facts.of(two.facts.network().inputs[1]).padded[0], PaddedValue());
}

TEST(PaddingFacts, ConstantsMayBeLongerAtTheLargerSizeButNotOthers) {
  for (const bool same : {true, false}) {
    TwoSizes two([&](int64_t batch) {
      GraphBuilder b;
      Array rows(DType::kFloat32, {batch});
      for (int64_t i = 0; i < batch; ++i) rows.set(i, same ? i : i + batch);
      return b.Out({b.Op("add", {b.In({batch}), b.n.AddConstant("rows", rows)})});
    });
    ASSERT_TRUE(two.facts.TakeInputs().ok());
    EXPECT_EQ(
        two.facts.TakeNode(0).status(),
        same ? absl::OkStatus() : absl::FailedPreconditionError("the constant 'rows' has other values with batch=4"));
  }
}

TEST(PaddingFacts, NodesMustBeTheSameAtBothSizes) {
  TwoSizes operators([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op(batch == 6 ? "exp" : "neg", {b.In({batch})})});
  });
  ASSERT_TRUE(operators.facts.TakeInputs().ok());
  EXPECT_EQ(operators.facts.TakeNode(0).status(),
            absl::FailedPreconditionError("the graph is another one with batch=4, from node 'exp_0' (exp) on"));
  TwoSizes attributes([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("leaky_relu", {b.In({batch})}, {{"alpha", 1.0 / batch}})});
  });
  ASSERT_TRUE(attributes.facts.TakeInputs().ok());
  EXPECT_EQ(attributes.facts.TakeNode(0).status(),
            absl::FailedPreconditionError("attribute 'alpha' of node 'leaky_relu_0' (leaky_relu) depends on 'batch'"));
  TwoSizes counts([](int64_t batch) {
    GraphBuilder b;
    const int x = b.Op("exp", {b.In({batch})});
    return b.Out({batch == 6 ? x : b.Op("neg", {x})});
  });
  EXPECT_EQ(counts.facts.TakeInputs(), absl::FailedPreconditionError("the graph is another one with batch=4"));
}

TEST(PaddingFacts, ExtentsMustBeMultiplesOfTheSymbol) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("exp", {b.n.AddInput("x", {DType::kFloat32, {batch + 1}})})});
  });
  EXPECT_EQ(two.facts.TakeInputs(),
            absl::FailedPreconditionError("an extent of tensor 'x' is 7 with batch=6 and 5 with batch=4"));
}

TEST(PaddingFacts, RestsOnTheFirstRowOnlyForLowValuesThatAreFinite) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("exp", {b.In({batch})})});
  });
  two.facts.RestOnFirst(PaddedValue::Known(-std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(two.facts.needs_first());
  two.facts.RestOnFirst(PaddedValue::Low());
  EXPECT_TRUE(two.facts.needs_first());
}

}  // namespace
}  // namespace diapason
