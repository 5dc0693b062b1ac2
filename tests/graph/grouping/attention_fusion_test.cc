#include "compiler/graph/grouping/attention_fusion.h"

#include <optional>

#include "testing.h"

namespace diapason {
namespace {

// Two heads of five queries by six keys, with the groups that its nodes have when the second product is reached.
struct Heads {
  explicit Heads(int64_t axis = -1) {
    scores = b.Op("matmul", {b.In({2, 5, 4}), b.In({2, 4, 6})});
    weights = b.Op("softmax", {scores}, {{"axis", axis}});
    product = b.Op("matmul", {weights, b.In({2, 6, 4})});
    moved = b.Op("transpose", {product}, {{"perm", Ints{1, 0, 2}}});
  }
  bool Join(GroupedNetwork& g) {
    rows.emplace(&g.table);
    attention.emplace(&g.table, &*rows);
    for (int tensor : {scores, weights}) rows->Opened(g.Open(tensor));
    return attention->Join(g.NodeOf(product));
  }
  GraphBuilder b;
  int scores = -1, weights = -1, product = -1, moved = -1;
  std::optional<RowFusion> rows;
  std::optional<AttentionFusion> attention;
};

TEST(AttentionFusion, MergesBothProductsAndTheSoftmaxAndOffersThemApart) {
  Heads h;
  GroupedNetwork g(h.b.Out({h.product}));
  ASSERT_TRUE(h.Join(g));
  const int group = g.GroupOf(h.product);
  EXPECT_TRUE(h.attention->IsAttention(group));
  EXPECT_EQ(g.table.group(group).nodes, g.NodesOf({h.scores, h.weights, h.product}));
  EXPECT_EQ(g.table.group(group).anchor, g.NodeOf(h.product));
  EXPECT_EQ(h.rows->RowsOf(group), nullptr);
  EXPECT_EQ(g.Finish(), (FusionOptions{{h.product, FusionMode::kApart}}));
  EXPECT_EQ(g.grouping.groups.size(), 1u);
}

TEST(AttentionFusion, LeavesThemApartWhereThatWasChosen) {
  Heads h;
  GroupedNetwork g(h.b.Out({h.product}), {{h.product, FusionMode::kApart}});
  EXPECT_FALSE(h.Join(g));
  EXPECT_EQ(g.GroupOf(h.product), -1);
  EXPECT_NE(g.GroupOf(h.scores), g.GroupOf(h.weights));
  EXPECT_EQ(g.Finish(), (FusionOptions{{h.product, FusionMode::kDefault}}));
}

TEST(AttentionFusion, NeedsASoftmaxAlongRowsWhoseResultNobodyElseReads) {
  Heads columns(-2);
  GroupedNetwork g(columns.b.Out({columns.product}));
  EXPECT_FALSE(columns.Join(g));
  EXPECT_EQ(g.Finish(), FusionOptions());
  for (const bool of_scores : {false, true}) {
    Heads h;
    GroupedNetwork read(h.b.Out({h.product, of_scores ? h.scores : h.weights}));
    EXPECT_FALSE(h.Join(read)) << of_scores;
    EXPECT_EQ(read.Finish(), FusionOptions());
  }
}

TEST(AttentionFusion, ATranspositionOfTheResultJoins) {
  Heads h;
  GroupedNetwork g(h.b.Out({h.moved}));
  ASSERT_TRUE(h.Join(g));
  EXPECT_TRUE(h.attention->JoinTransposition(g.NodeOf(h.moved)));
  EXPECT_EQ(g.GroupOf(h.moved), g.GroupOf(h.product));
}

TEST(AttentionFusion, ATranspositionOfOtherProductsDoesNot) {
  Heads h;
  GroupedNetwork g(h.b.Out({h.moved}), {{h.product, FusionMode::kApart}});
  ASSERT_FALSE(h.Join(g));
  g.Open(h.product);
  EXPECT_FALSE(h.attention->JoinTransposition(g.NodeOf(h.moved)));
  EXPECT_EQ(g.GroupOf(h.moved), -1);
}

}  // namespace
}  // namespace diapason
