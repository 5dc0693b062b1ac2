#include "compiler/graph/grouping/epilogue_fusion.h"

#include "testing.h"

namespace diapason {
namespace {

// A residual addition behind two convolutions and one.
struct Residual {
  GraphBuilder b;
  int x = b.In({1, 2, 4, 4});
  int first = b.Conv(x, 2, 2), deep = b.Conv(first, 2, 2), shallow = b.Conv(x, 2, 2, 1);
  int sum = b.Op("add", {shallow, deep});

  GroupedNetwork Grouped(const std::vector<std::pair<int, FusionMode>>& choices) {
    GroupedNetwork g(b.Out({sum}), choices);
    for (int conv : {first, deep, shallow}) g.Open(conv);
    return g;
  }
};

TEST(EpilogueFusion, AResidualAdditionJoinsTheDeeperBranchAndOffersTheOthers) {
  Residual r;
  GroupedNetwork g = r.Grouped({});
  EXPECT_TRUE(EpilogueFusion(&g.table).Join(g.NodeOf(r.sum)));
  EXPECT_EQ(g.GroupOf(r.sum), g.GroupOf(r.deep));
  EXPECT_EQ(g.Finish(), (FusionOptions{{r.sum, FusionMode::kApart}, {r.sum, FusionMode::kShorterBranch}}));
}

TEST(EpilogueFusion, AResidualAdditionGoesWhereItWasChosenToGo) {
  Residual r;
  GroupedNetwork g = r.Grouped({{r.sum, FusionMode::kShorterBranch}});
  EXPECT_TRUE(EpilogueFusion(&g.table).Join(g.NodeOf(r.sum)));
  EXPECT_EQ(g.GroupOf(r.sum), g.GroupOf(r.shallow));
  GroupedNetwork apart = r.Grouped({{r.sum, FusionMode::kApart}});
  EXPECT_FALSE(EpilogueFusion(&apart.table).Join(apart.NodeOf(r.sum)));
  EXPECT_EQ(apart.GroupOf(r.sum), -1);
}

TEST(EpilogueFusion, OfEqualDepthTheLargerWeightsDecide) {
  GraphBuilder b;
  const int x = b.In({1, 2, 4, 4}), large = b.Conv(x, 2, 2), small = b.Conv(x, 2, 2, 1),
            sum = b.Op("add", {small, large});
  GroupedNetwork g(b.Out({sum}));
  g.Open(large);
  g.Open(small);
  EXPECT_TRUE(EpilogueFusion(&g.table).Join(g.NodeOf(sum)));
  EXPECT_EQ(g.GroupOf(sum), g.GroupOf(large));
}

TEST(EpilogueFusion, ABiasIsNoChoicePoint) {
  GraphBuilder b;
  const int conv = b.Conv(b.In({1, 2, 4, 4}), 2, 2), sum = b.Op("add", {conv, b.Const({2, 1, 1})});
  GroupedNetwork g(b.Out({sum}));
  g.Open(conv);
  EXPECT_TRUE(EpilogueFusion(&g.table).Join(g.NodeOf(sum)));
  EXPECT_EQ(g.Finish(), FusionOptions());
}

TEST(EpilogueFusion, JoinsNoGroupThatOthersReadOrOfAnotherShape) {
  GraphBuilder b;
  const int conv = b.Conv(b.In({1, 2, 4, 4}), 2, 2), relu = b.Op("relu", {conv}), other = b.Op("exp", {conv});
  const int row = b.Op("neg", {b.In({4})}), wide = b.Op("add", {row, b.In({1, 2, 4, 4})});
  GroupedNetwork g(b.Out({relu, other, wide}));
  g.Open(conv);
  g.Open(row);
  EXPECT_FALSE(EpilogueFusion(&g.table).Join(g.NodeOf(relu)));
  EXPECT_FALSE(EpilogueFusion(&g.table).Join(g.NodeOf(wide)));
}

TEST(EpilogueFusion, ADiamondJoinsAsAWhole) {
  GraphBuilder b;
  const int conv = b.Conv(b.In({1, 2, 4, 4}), 2, 2), gate = b.Op("sigmoid", {conv}), swish = b.Op("mul", {conv, gate});
  GroupedNetwork g(b.Out({b.Op("neg", {swish})}));
  g.Open(conv);
  EXPECT_TRUE(EpilogueFusion(&g.table).JoinDiamond(g.network.nodes[g.NodeOf(gate)]));
  EXPECT_EQ(g.table.group(g.GroupOf(conv)).nodes, g.NodesOf({conv, gate, swish}));
}

TEST(EpilogueFusion, ADiamondThroughAnotherShapeDoesNotJoin) {
  GraphBuilder b;
  const int conv = b.Conv(b.In({1, 2, 4, 4}), 2, 2);
  const int pooled = b.Op("reduce_mean", {conv}, {{"axes", Ints{2, 3}}, {"keepdims", int64_t{1}}});
  const int scaled = b.Op("mul", {conv, pooled});
  GroupedNetwork g(b.Out({scaled}));
  g.Open(conv);
  EXPECT_FALSE(EpilogueFusion(&g.table).JoinDiamond(g.network.nodes[g.NodeOf(pooled)]));
  EXPECT_EQ(g.table.group(g.GroupOf(conv)).nodes.size(), 1u);
}

}  // namespace
}  // namespace diapason
