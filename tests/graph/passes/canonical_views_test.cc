#include "compiler/graph/passes/canonical_views.h"

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
