#include "compiler/graph/grouping/row_fusion.h"

#include "testing.h"

namespace diapason {
namespace {

const Attributes kOverRows{{"axes", Ints{1}}, {"keepdims", int64_t{1}}};

TEST(RowFusion, KnowsTheRowsThatAGroupReduces) {
  GraphBuilder b;
  const int x = b.In({4, 6}), mean = b.Op("reduce_mean", {x}, kOverRows), other = b.Op("exp", {x});
  GroupedNetwork g(b.Out({mean, other}));
  RowFusion rows(&g.table);
  rows.Opened(g.Open(mean));
  rows.Opened(g.Open(other));
  ASSERT_NE(rows.RowsOf(g.GroupOf(mean)), nullptr);
  EXPECT_EQ(*rows.RowsOf(g.GroupOf(mean)), (Rows{{4, 6}, {1}}));
  EXPECT_EQ(rows.RowsOf(g.GroupOf(other)), nullptr);
  EXPECT_EQ(rows.RowsOf(-1), nullptr);
  rows.Forget(g.GroupOf(mean));
  EXPECT_EQ(rows.RowsOf(g.GroupOf(mean)), nullptr);
}

TEST(RowFusion, WhatGoesOnRowByRowJoinsTheReduction) {
  GraphBuilder b;
  const int x = b.In({4, 6}), mean = b.Op("reduce_mean", {x}, kOverRows), centred = b.Op("sub", {x, mean});
  GroupedNetwork g(b.Out({b.Op("exp", {centred})}));
  RowFusion rows(&g.table);
  rows.Opened(g.Open(mean));
  EXPECT_FALSE(rows.IsChain(g.GroupOf(mean)));
  EXPECT_TRUE(rows.JoinChain(g.network.nodes[g.NodeOf(centred)]));
  EXPECT_EQ(g.GroupOf(centred), g.GroupOf(mean));
  EXPECT_TRUE(rows.IsChain(g.GroupOf(mean)));
}

TEST(RowFusion, WhatFollowsElementByElementIsNoChain) {
  GraphBuilder b;
  const int softmax = b.Op("softmax", {b.In({4, 6})}, {{"axis", int64_t{1}}}),
            scaled = b.Op("mul", {softmax, b.Const({})});
  GroupedNetwork g(b.Out({scaled}));
  RowFusion rows(&g.table);
  rows.Opened(g.Open(softmax));
  EXPECT_FALSE(rows.JoinChain(g.network.nodes[g.NodeOf(scaled)]));
  EXPECT_EQ(g.GroupOf(scaled), -1);
}

TEST(RowFusion, AReductionOfColumnsDoesNotJoinRows) {
  GraphBuilder b;
  const int softmax = b.Op("softmax", {b.In({4, 6})}, {{"axis", int64_t{1}}});
  const int columns = b.Op("reduce_max", {softmax}, {{"axes", Ints{0}}, {"keepdims", int64_t{1}}});
  const int left = b.Op("sub", {softmax, columns});
  GroupedNetwork g(b.Out({left}));
  RowFusion rows(&g.table);
  rows.Opened(g.Open(softmax));
  EXPECT_FALSE(rows.JoinChain(g.network.nodes[g.NodeOf(columns)]));
}

// A normalized token in front of a product.
struct TokenProduct {
  explicit TokenProduct(int64_t tokens) : x(b.In({1, tokens, 12})) {
    normal = b.Op("layer_norm", {x}, {{"axis", int64_t{-1}}});
    product = b.Op("matmul", {normal, b.Const({1, 12, 20})});
  }
  FusionOptions Join(GroupedNetwork& g) const {
    RowFusion rows(&g.table);
    rows.Opened(g.Open(normal));
    rows.Opened(g.Open(product));
    rows.JoinProducts();
    return g.Finish();
  }
  GraphBuilder b;
  int x, normal = -1, product = -1;
};

TEST(RowFusion, ARowIsOfferedToTheProductThatReadsIt) {
  TokenProduct one(1);
  const Network n = one.b.Out({one.product});
  GroupedNetwork g(n), in_product(n, {{one.normal, FusionMode::kInProduct}}),
      apart(n, {{one.product, FusionMode::kApart}});
  EXPECT_EQ(one.Join(g), (FusionOptions{{one.normal, FusionMode::kInProduct}}));
  EXPECT_EQ(g.grouping.groups.size(), 2u);
  EXPECT_EQ(one.Join(in_product), (FusionOptions{{one.normal, FusionMode::kInProduct}}));
  ASSERT_EQ(in_product.grouping.groups.size(), 1u);
  EXPECT_EQ(in_product.grouping.groups[0].nodes, g.NodesOf({one.normal, one.product}));
  EXPECT_EQ(one.Join(apart), FusionOptions())
      << "a product of an attention that is apart takes its row without a choice";
  EXPECT_EQ(apart.grouping.groups.size(), 1u);
}

TEST(RowFusion, SeveralRowsStayInTheirOwnKernel) {
  TokenProduct two(2);
  GroupedNetwork g(two.b.Out({two.product}), {{two.normal, FusionMode::kInProduct}});
  EXPECT_EQ(two.Join(g), FusionOptions());
  EXPECT_EQ(g.grouping.groups.size(), 2u);
}

}  // namespace
}  // namespace diapason
