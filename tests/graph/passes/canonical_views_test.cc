#include "compiler/graph/passes/canonical_views.h"

#include <tuple>
#include <vector>

#include "testing.h"

namespace diapason {
namespace {

bool RewriteView(Network& network, size_t n) { return RewriteNode(CanonicalizeView, network, n); }

TEST(CanonicalView, DropsAReshapeThatChangesNothing) {
  GraphBuilder b;
  const int x = b.In({2, 3});
  Network network = b.Out({b.Op("exp", {b.Op("reshape", {x}, {{"shape", Ints{2, 3}}})})});
  EXPECT_TRUE(RewriteView(network, 0));
  ASSERT_EQ(network.nodes.size(), 1u);
  EXPECT_EQ(network.nodes[0].inputs, std::vector<int>{x});
}

TEST(CanonicalView, ATransposeOfATransposeIsOneWithBothPermutations) {
  GraphBuilder b;
  const int x = b.In({2, 3, 4});
  const int inner = b.Op("transpose", {x}, {{"perm", Ints{1, 2, 0}}});
  Network before = b.Out({b.Op("transpose", {inner}, {{"perm", Ints{1, 0, 2}}})});
  Network after = before;
  EXPECT_TRUE(RewriteView(after, 1));
  ASSERT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.nodes[0].attributes.Ints("perm", {}), (Ints{2, 1, 0}));
  ExpectSameResults(before, after);
}

TEST(CanonicalView, AConstantScaleGoesBehindTwoTransposes) {
  GraphBuilder b;
  const int first = b.Op("transpose", {b.In({2, 3, 4})}, {{"perm", Ints{1, 2, 0}}});
  const int scale = b.n.AddConstant("scale", Array::FromFloats({}, {0.5}));
  const int scaled = b.Op("mul", {scale, first});
  Network before = b.Out({b.Op("transpose", {scaled}, {{"perm", Ints{1, 0, 2}}})});
  Network after = before;
  EXPECT_TRUE(RewriteView(after, 2));
  ASSERT_EQ(after.nodes.size(), 3u);
  EXPECT_EQ(after.nodes[1].op, "transpose");
  EXPECT_EQ(after.nodes[2].op, "mul");
  ExpectSameResults(before, after);
}

// The scale would be computed twice, or there is no other transpose that it stands between.
TEST(CanonicalView, LeavesAScaleThatIsReadAgainOrBehindNoTranspose) {
  for (const bool read_again : {true, false}) {
    GraphBuilder b;
    int x = b.In({2, 3, 4});
    if (read_again) x = b.Op("transpose", {x});
    const int scaled = b.Op("mul", {x, b.n.AddConstant("scale", Array::FromFloats({}, {0.5}))});
    std::vector<int> outputs = {b.Op("transpose", {scaled})};
    if (read_again) outputs.push_back(b.Op("exp", {scaled}));
    Network network = b.Out(outputs);
    const std::string before = network.ToString();
    for (size_t n = 0; n < network.nodes.size(); ++n) EXPECT_FALSE(RewriteView(network, n)) << n;
    EXPECT_EQ(network.ToString(), before);
  }
}

TEST(CanonicalView, AViewBehindATransposeGivesItsUnitAxesToTheViewInFront) {
  for (const auto& [view, perm, shape] :
       std::vector<std::tuple<Ints, Ints, Ints>>{{{3, 5, 4}, {0, 2, 1}, {1, 3, 4, 5}},
                                                 {{3, 5, 4}, {1, 0, 2}, {5, 1, 3, 4, 1}},
                                                 {{1, 15, 4}, {2, 0, 1}, {4, 15}}}) {
    GraphBuilder b;
    const int inner = b.Op("reshape", {b.In({15, 4})}, {{"shape", view}});
    const int moved = b.Op("transpose", {inner}, {{"perm", perm}});
    Network before = b.Out({b.Op("exp", {b.Op("reshape", {moved}, {{"shape", shape}})})});
    Network after = before;
    EXPECT_TRUE(RewriteView(after, 2));
    EXPECT_EQ(CountOps(after, "transpose"), 1) << after.ToString();
    EXPECT_LE(after.nodes.size(), 3u) << after.ToString();
    ExpectSameResults(before, after);
  }
}

TEST(CanonicalView, AReductionDropsTheAxisThatAViewDrops) {
  GraphBuilder b;
  const int mean = b.Op("reduce_mean", {b.In({2, 3})}, {{"axes", Ints{1}}});
  Network before = b.Out({b.Op("reshape", {mean}, {{"shape", Ints{2}}})});
  Network after = before;
  EXPECT_TRUE(RewriteView(after, 1));
  ASSERT_EQ(after.nodes.size(), 1u);
  EXPECT_EQ(after.nodes[0].attributes.Int("keepdims", 1), 0);
  ExpectSameResults(before, after);
}

TEST(CanonicalView, LeavesArithmeticAndViewsThatMoveElementsAlone) {
  GraphBuilder b;
  const int x = b.In({2, 3});
  const int one = b.n.AddConstant("one", Counting({}));
  Network network = b.Out({b.Op("mul", {b.Op("transpose", {x}), one})});
  const std::string before = network.ToString();
  for (size_t n : {0, 1}) EXPECT_FALSE(RewriteView(network, n)) << n;
  EXPECT_EQ(network.ToString(), before);
}

TEST(CanonicalView, PermutationsAreReversedByDefaultAndMayCountFromTheEnd) {
  EXPECT_EQ(PermutationOf(Node{"transpose", "", {}, {0}, 1}, 3), (Ints{2, 1, 0}));
  EXPECT_EQ(PermutationOf(Node{"transpose", "", Attributes{{"perm", Ints{0, -1, 1}}}, {0}, 1}, 3), (Ints{0, 2, 1}));
}

}  // namespace
}  // namespace diapason
