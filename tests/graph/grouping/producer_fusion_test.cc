#include "compiler/graph/grouping/producer_fusion.h"

#include "testing.h"

namespace diapason {
namespace {

// Gives each node a group of its own, or one of rows or attention that it may join, then absorbs.
class ProducerFusionTest : public ::testing::Test {
 protected:
  FusionOptions Absorb(GroupedNetwork& g) {
    RowFusion rows(&g.table);
    AttentionFusion attention(&g.table, &rows);
    for (int n = 0; n < static_cast<int>(g.network.nodes.size()); ++n) {
      if (g.facts.view[n]) {
        g.table.AddView(n);
      } else if (g.table.group_of(n) < 0 && !rows.JoinChain(g.network.nodes[n]) && !attention.Join(n)) {
        rows.Opened(g.table.Open(n));
      }
    }
    ProducerFusion(&g.table, &rows, &attention).AbsorbAll();
    return g.Finish();
  }

  GraphBuilder b_;
};

TEST_F(ProducerFusionTest, CheapOperatorsGoIntoTheConvolutionBehindOrMayStandApart) {
  const int relu = b_.Op("relu", {b_.In({1, 8, 4, 4})}), conv = b_.Conv(relu, 8, 2);
  const Network n = b_.Out({conv});
  GroupedNetwork g(n), apart(n, {{relu, FusionMode::kApart}});
  EXPECT_EQ(Absorb(g), (FusionOptions{{relu, FusionMode::kApart}}));
  EXPECT_EQ(g.grouping.groups.size(), 1u);
  EXPECT_EQ(Absorb(apart), (FusionOptions{{relu, FusionMode::kApart}}));
  EXPECT_EQ(apart.grouping.groups.size(), 2u);
}

TEST_F(ProducerFusionTest, ChainsAreAbsorbedWhole) {
  const Attributes wider{{"pads", Ints{0, 0, 1, 1, 0, 0, 1, 1}}};
  const int conv = b_.Conv(b_.Op("pad", {b_.Op("pad", {b_.In({1, 8, 4, 4})}, wider)}, wider), 8, 2);
  GroupedNetwork g(b_.Out({conv}));
  EXPECT_EQ(Absorb(g), FusionOptions()) << "data that is only moved is no choice point";
  ASSERT_EQ(g.grouping.groups.size(), 1u);
}

TEST_F(ProducerFusionTest, CostlyOperatorsStayInFrontOfAConvolution) {
  const int conv = b_.Conv(b_.Op("exp", {b_.In({1, 8, 4, 4})}), 8, 2);
  GroupedNetwork g(b_.Out({conv}));
  Absorb(g);
  EXPECT_EQ(g.grouping.groups.size(), 2u);
}

TEST_F(ProducerFusionTest, CostlyOperatorsGoIntoAnElementwiseReaderOfTheirShape) {
  const int same = b_.Op("neg", {b_.Op("exp", {b_.In({4, 6})})});
  const int wider = b_.Op("add", {b_.Op("exp", {b_.In({6})}), b_.In({4, 6})});
  GroupedNetwork g(b_.Out({same, wider}));
  Absorb(g);
  EXPECT_EQ(g.grouping.groups.size(), 3u) << "the second exp would be computed four times";
}

TEST_F(ProducerFusionTest, RowsOfATableAreLookedUpWhereTheyAreAdded) {
  const auto look_up = [&] { return b_.Op("gather", {b_.In({10, 8}), b_.In({4}, DType::kInt64)}); };
  const int sum = b_.Op("add", {look_up(), look_up()});
  const int product = b_.Op("matmul", {look_up(), b_.In({8, 6})});
  const int through = b_.Op("matmul", {b_.Op("add", {look_up(), b_.In({4, 8})}), b_.In({8, 6})});
  GroupedNetwork g(b_.Out({sum, product, through}));
  Absorb(g);
  ASSERT_EQ(g.grouping.groups.size(), 5u) << "products read each of their rows several times";
  EXPECT_EQ(g.grouping.groups[0].nodes.size(), 3u);
}

TEST_F(ProducerFusionTest, TheFirstTokenGoesIntoItsProductThroughAView) {
  for (const int64_t tokens : {1, 2}) {
    GraphBuilder b;
    const int first = b.Op("slice", {b.In({1, 5, 8})},
                           {{"axes", Ints{1}}, {"starts", Ints{0}}, {"ends", Ints{tokens}}, {"steps", Ints{1}}});
    const int rows = b.Op("reshape", {first}, {{"shape", Ints{tokens, 8}}});
    GroupedNetwork g(b.Out({b.Op("gemm", {rows, b.In({8, 6})})}));
    Absorb(g);
    EXPECT_EQ(g.grouping.groups.size(), static_cast<size_t>(tokens)) << tokens;
  }
}

TEST_F(ProducerFusionTest, WeightsAreNotComputedAgain) {
  const int weights = b_.Op("relu", {b_.In({2, 8, 3, 3})});
  const int conv = b_.Op("conv2d", {b_.In({1, 8, 4, 4}), weights});
  GroupedNetwork g(b_.Out({conv}));
  Absorb(g);
  EXPECT_EQ(g.grouping.groups.size(), 2u);
}

TEST_F(ProducerFusionTest, ATranspositionGoesIntoAConvolutionOfFewChannels) {
  for (const int64_t channels : {3, 8}) {
    GraphBuilder b;
    const int moved = b.Op("transpose", {b.In({1, 4, 4, channels})}, {{"perm", Ints{0, 3, 1, 2}}});
    GroupedNetwork g(b.Out({b.Conv(moved, channels, 2)}));
    Absorb(g);
    EXPECT_EQ(g.grouping.groups.size(), channels == 3 ? 1u : 2u) << channels;
  }
}

TEST_F(ProducerFusionTest, KeysGoTransposedIntoAProductOfOneRow) {
  for (const int64_t rows : {1, 2}) {
    GraphBuilder b;
    const int keys = b.Op("transpose", {b.In({2, 6, 4})}, {{"perm", Ints{0, 2, 1}}});
    GroupedNetwork g(b.Out({b.Op("matmul", {b.In({2, rows, 4}), keys})}));
    Absorb(g);
    EXPECT_EQ(g.grouping.groups.size(), static_cast<size_t>(rows)) << rows;
  }
}

TEST_F(ProducerFusionTest, AResultOfSeveralReadersGoesIntoThemWhereTheyAreOneChainOfRows) {
  const int sum = b_.Op("add", {b_.In({4, 6}), b_.In({4, 6})});
  const int mean = b_.Op("reduce_mean", {sum}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}});
  GroupedNetwork chain(b_.Out({b_.Op("sub", {sum, mean})}));
  Absorb(chain);
  EXPECT_EQ(chain.grouping.groups.size(), 1u);
  GraphBuilder c;
  const int read_twice = c.Op("relu", {c.In({1, 8, 4, 4})});
  GroupedNetwork apart(c.Out({c.Conv(read_twice, 8, 2), c.Conv(read_twice, 8, 3)}));
  Absorb(apart);
  EXPECT_EQ(apart.grouping.groups.size(), 3u);
}

TEST_F(ProducerFusionTest, RepeatedHeadsGoIntoAttentionThroughTheirView) {
  const int heads = b_.Op("expand", {b_.In({2, 1, 6, 4})}, {{"shape", Ints{2, 2, 6, 4}}});
  const int values = b_.Op("reshape", {heads}, {{"shape", Ints{4, 6, 4}}});
  const int scores = b_.Op("matmul", {b_.In({4, 5, 4}), b_.In({4, 4, 6})});
  const int weights = b_.Op("softmax", {scores}, {{"axis", int64_t{-1}}});
  GroupedNetwork g(b_.Out({b_.Op("matmul", {weights, values})}));
  Absorb(g);
  ASSERT_EQ(g.grouping.groups.size(), 1u);
  EXPECT_EQ(g.grouping.groups[0].nodes.size(), 5u);
  EXPECT_TRUE(g.grouping.alias_of.empty());
}

}  // namespace
}  // namespace diapason
