#include "compiler/graph/padding/rules.h"

#include "testing.h"

namespace diapason {
namespace {

// What the rule of a network's last node says, once everything in front of it is known: constants and inputs alone.
absl::Status Follow(TwoSizes& two, PaddingRule rule) {
  EXPECT_TRUE(two.facts.TakeInputs().ok());
  EXPECT_TRUE(two.facts.TakeNode(0).value());
  return rule(two.facts, two.node(0), two.facts.twin().nodes[0]);
}

absl::Status Combined(const std::string& node) {
  return absl::FailedPreconditionError("node '" + node + "_0' (" + node +
                                       ") combines values along 'batch', those of padding included");
}

TEST(PaddingRules, SumsGoOverZerosOfPaddingAndMeansOverNone) {
  for (const std::string op : {"reduce_sum", "reduce_mean"}) {
    for (const std::string input : {"mask", "x"}) {
      TwoSizes two([&](int64_t batch) {
        GraphBuilder b;
        return b.Out({b.Op(op, {b.n.AddInput(input, {DType::kFloat32, {batch, 2}})}, {{"axes", Ints{0}}})});
      });
      EXPECT_EQ(Follow(two, PaddingRulesOfReductions().at(op)),
                op == "reduce_sum" && input == "mask" ? absl::OkStatus() : Combined(op));
    }
  }
}

TEST(PaddingRules, ReductionsBesideTheSymbolKeepRowsApart) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("reduce_mean", {b.In({batch, 2})}, {{"axes", Ints{1}}})});
  });
  EXPECT_EQ(Follow(two, PaddingRulesOfReductions().at("reduce_mean")), absl::OkStatus());
  EXPECT_EQ(two.result(0).blocks, (RowBlocks{1, 0}));
}

TEST(PaddingRules, ProductsNeedZerosAlongTheAxisThatTheySumUp) {
  for (const std::string left : {"mask", "x"}) {
    TwoSizes two([&](int64_t batch) {
      GraphBuilder b;
      const int rows = b.n.AddInput(left, {DType::kFloat32, {3, batch}});
      return b.Out({b.Op("matmul", {rows, b.In({batch, 5})})});
    });
    EXPECT_EQ(Follow(two, PaddingRulesOfProducts().at("matmul")),
              left == "mask" ? absl::OkStatus() : Combined("matmul"));
  }
}

TEST(PaddingRules, RowsOfAProductStayRows) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("matmul", {b.In({batch, 4}), b.Const({4, 5})})});
  });
  EXPECT_EQ(Follow(two, PaddingRulesOfProducts().at("matmul")), absl::OkStatus());
  EXPECT_EQ(two.result(0).blocks, (RowBlocks{1, 0}));
}

TEST(PaddingRules, SlicesTakeRowsThatAreNeverPaddingOrAll) {
  for (const int64_t row : {2, 3}) {
    TwoSizes two([&](int64_t batch) {
      GraphBuilder b;
      return b.Out(
          {b.Op("slice", {b.In({batch, 2})}, {{"starts", Ints{row}}, {"ends", Ints{row + 1}}, {"axes", Ints{0}}})});
    });
    EXPECT_EQ(Follow(two, PaddingRulesOfMoves().at("slice")),
              row == 2 ? absl::OkStatus()
                       : absl::FailedPreconditionError(
                             "node 'slice_0' (slice) takes elements from places on 'batch' that may be padding"));
  }
}

TEST(PaddingRules, TransposesCarryWhatIsKnownOfAnAxis) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("transpose", {b.n.AddInput("mask", {DType::kFloat32, {batch, 2}})})});
  });
  EXPECT_EQ(Follow(two, PaddingRulesOfMoves().at("transpose")), absl::OkStatus());
  EXPECT_EQ(two.result(0).blocks, (RowBlocks{0, 1}));
  EXPECT_TRUE(two.result(0).padded[1].is(0));
}

TEST(PaddingRules, ElementwiseOperatorsComputeOnPaddedValues) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("mul", {b.n.AddInput("mask", {DType::kFloat32, {batch, 2}}), b.In({batch, 2})})});
  });
  EXPECT_EQ(Follow(two, FollowElementwise), absl::OkStatus());
  EXPECT_TRUE(two.result(0).padded[0].is(0));
}

TEST(PaddingRules, ViewsThatMixRowsWithOthersAreRefused) {
  TwoSizes two([](int64_t batch) {
    GraphBuilder b;
    return b.Out({b.Op("reshape", {b.In({2, batch})}, {{"shape", Ints{2 * batch}}})});
  });
  EXPECT_EQ(Follow(two, FollowView),
            absl::FailedPreconditionError("node 'reshape_0' (reshape) mixes 'batch' with other axes"));
}

}  // namespace
}  // namespace diapason
