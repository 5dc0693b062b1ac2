#include "compiler/graph/row_nodes.h"

#include "testing.h"

namespace diapason {
namespace {

TEST(RowNodes, RowsAreThoseThatAReductionOrNormalizationReduces) {
  GraphBuilder b;
  const int x = b.In({2, 4, 6});
  const Attributes keep{{"axes", Ints{-1, 0}}, {"keepdims", int64_t{1}}},
      drop{{"axes", Ints{1}}, {"keepdims", int64_t{0}}};
  const Network n = b.Out({b.Op("reduce_sum", {x}, keep), b.Op("reduce_sum", {x}, drop),
                           b.Op("softmax", {x}, {{"axis", int64_t{-2}}}),
                           b.Op("layer_norm", {x}, {{"axis", int64_t{1}}}), b.Op("exp", {x})});
  EXPECT_EQ(RowsReducedBy(n, n.nodes[0]), (Rows{{2, 4, 6}, {0, 2}}));
  EXPECT_FALSE(RowsReducedBy(n, n.nodes[1]).has_value()) << "drops the axis";
  EXPECT_EQ(RowsReducedBy(n, n.nodes[2]), (Rows{{2, 4, 6}, {1}}));
  EXPECT_EQ(RowsReducedBy(n, n.nodes[3]), (Rows{{2, 4, 6}, {1, 2}}));
  EXPECT_FALSE(RowsReducedBy(n, n.nodes[4]).has_value());
}

TEST(RowNodes, RowsAreAlongTheLastAxisOfTheirOwnShapeAlone) {
  EXPECT_TRUE((Rows{{4, 6}, {1}}.AreAlongLastAxisOf({4, 6})));
  EXPECT_FALSE((Rows{{4, 6}, {0}}.AreAlongLastAxisOf({4, 6})));
  EXPECT_FALSE((Rows{{4, 6}, {1}}.AreAlongLastAxisOf({6, 4})));
  EXPECT_FALSE((Rows{{2, 4, 6}, {1, 2}}.AreAlongLastAxisOf({2, 4, 6})));
}

TEST(RowNodes, AProductOfOneRowReadsItsSecondOperandOnce) {
  GraphBuilder b;
  const int token = b.In({2, 1, 4}), tokens = b.In({2, 3, 4}), weights = b.In({2, 4, 6}), flat = b.In({4, 6});
  const Network n =
      b.Out({b.Op("matmul", {token, weights}), b.Op("matmul", {tokens, weights}),
             b.Op("matmul", {b.In({1, 4}), weights}), b.Op("matmul", {token, flat}), b.Op("add", {token, token}),
             b.Op("gemm", {b.In({1, 4}), flat}), b.Op("gemm", {b.In({2, 4}), flat})});
  EXPECT_TRUE(IsProductOfOneRow(n, n.nodes[0]));
  EXPECT_FALSE(IsProductOfOneRow(n, n.nodes[1])) << "three rows";
  EXPECT_FALSE(IsProductOfOneRow(n, n.nodes[2])) << "one row is read by both batches";
  EXPECT_TRUE(IsProductOfOneRow(n, n.nodes[3]));
  EXPECT_FALSE(IsProductOfOneRow(n, n.nodes[4]));
  EXPECT_TRUE(IsProductOfOneRow(n, n.nodes[5]));
  EXPECT_FALSE(IsProductOfOneRow(n, n.nodes[6]));
}

}  // namespace
}  // namespace diapason
