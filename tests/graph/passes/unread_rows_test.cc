#include <string>
#include <vector>

#include "compiler/graph/passes.h"
#include "testing.h"

namespace diapason {
namespace {

// Rows are axis 1 of tokens.
class UnreadRowsTest : public ::testing::Test {
 protected:
  int Rows(int x, int64_t begin, int64_t end, int64_t axis = 1, int64_t step = 1) {
    return b_.Op("slice", {x},
                 {{"axes", Ints{axis}}, {"starts", Ints{begin}}, {"ends", Ints{end}}, {"steps", Ints{step}}});
  }
  int Linear(int x, int64_t in, int64_t out) {
    return b_.Op("add", {b_.Op("matmul", {x, b_.Const({in, out})}), b_.Const({out})});
  }
  int Norm(int x) { return b_.Op("layer_norm", {x}, {{"axis", int64_t{-1}}}); }
  // Two heads of three elements.
  int Heads(int x) {
    const int64_t tokens = b_.n.tensors[x].type.shape[1];
    return b_.Op("transpose", {b_.Op("reshape", {x}, {{"shape", Ints{2, tokens, 2, 3}}})},
                 {{"perm", Ints{0, 2, 1, 3}}});
  }

  // What the pass makes of the network; its results are the same.
  Network Dropped(const Network& before) {
    Network after = before;
    changed_ = DropUnreadRows(after);
    ExpectSameResults(before, after);
    return after;
  }
  // The largest result of an operator.
  static int64_t LargestOf(const Network& network, const std::string& op) {
    int64_t most = 0;
    for (const Node& node : network.nodes)
      if (node.op == op) most = std::max(most, network.tensor(node.output).type.elements());
    return most;
  }

  GraphBuilder b_;
  bool changed_ = false;
};

TEST_F(UnreadRowsTest, TheLastLayerIsComputedForTheTokenThatIsRead) {
  const int x = b_.In({2, 5, 6});
  const int normed = Norm(x);
  const int scores = b_.Op("matmul", {Heads(Linear(normed, 6, 6)),
                                      b_.Op("transpose", {Heads(Linear(normed, 6, 6))}, {{"perm", Ints{0, 1, 3, 2}}})});
  const int weights = b_.Op("softmax", {scores}, {{"axis", int64_t{-1}}});
  const int values = b_.Op("matmul", {weights, Heads(Linear(normed, 6, 6))});
  const int merged =
      b_.Op("reshape", {b_.Op("transpose", {values}, {{"perm", Ints{0, 2, 1, 3}}})}, {{"shape", Ints{2, 5, 6}}});
  const int attended = b_.Op("add", {x, Linear(merged, 6, 6)});
  const int wide = b_.Op("gelu", {Linear(Norm(attended), 6, 24)});
  const int last = b_.Op("add", {attended, Linear(wide, 24, 6)});
  const int token = b_.Op("reshape", {Rows(Norm(last), 0, 1)}, {{"shape", Ints{2, 6}}});
  const Network after = Dropped(b_.Out({b_.Op("gemm", {token, b_.Const({6, 4}), b_.Const({4})})}));
  EXPECT_TRUE(changed_);
  EXPECT_EQ(LargestOf(after, "gelu"), 2 * 24);
  EXPECT_EQ(LargestOf(after, "softmax"), 2 * 2 * 5);
  EXPECT_EQ(CountOps(after, "slice"), 2) << "of the input and of what all projections read";
  EXPECT_EQ(LargestOf(after, "layer_norm"), 2 * 5 * 6) << "keys and values are of all tokens";
}

TEST_F(UnreadRowsTest, AllRowsStayWhereSomebodyReadsThem) {
  const int y = Linear(b_.In({1, 5, 6}), 6, 6), z = Linear(b_.In({1, 5, 6}), 6, 6), w = Linear(b_.In({1, 5, 6}), 6, 6);
  Dropped(b_.Out({y, Rows(y, 0, 1), Rows(z, 0, 1), Rows(z, 2, 3), Rows(w, 3, 4), b_.Op("exp", {w})}));
  EXPECT_FALSE(changed_);
}

TEST_F(UnreadRowsTest, OperatorsThatMixRowsStopIt) {
  const int reduced = b_.Op("reduce_mean", {b_.In({1, 6, 6})}, {{"axes", Ints{1}}, {"keepdims", int64_t{1}}});
  const int softmax = b_.Op("softmax", {b_.In({1, 6, 6})}, {{"axis", int64_t{1}}});
  const int columns = b_.Op("matmul", {b_.In({1, 6, 6}), b_.Const({6, 6})});
  const int image = b_.Conv(b_.In({1, 3, 6, 6}), 3, 3);
  Dropped(b_.Out({b_.Op("add", {reduced, Rows(b_.In({1, 6, 6}), 0, 1)}), Rows(softmax, 0, 1), Rows(columns, 1, 2, 2),
                  Rows(image, 0, 2, 2)}));
  EXPECT_FALSE(changed_);
}

TEST_F(UnreadRowsTest, StepsAndMostOfTheRowsStay) {
  const int y = Linear(b_.In({1, 6, 6}), 6, 6), z = Linear(b_.In({1, 6, 6}), 6, 6);
  Dropped(b_.Out({Rows(y, 0, 6, 1, 2), Rows(z, 1, 6)}));
  EXPECT_FALSE(changed_);
}

TEST_F(UnreadRowsTest, ElementwiseOperatorsAloneAreNotWorthIt) {
  Dropped(b_.Out({Rows(b_.Op("exp", {b_.In({1, 6, 6})}), 0, 1)}));
  EXPECT_FALSE(changed_);
}

TEST_F(UnreadRowsTest, OperandsAreSlicedWhereTheyHaveTheAxis) {
  const int x = b_.In({4, 6});
  const int product = b_.Op("gemm", {x, b_.Const({6, 8}), b_.Const({4, 1})});
  const int sum = b_.Op("add", {b_.Op("mul", {product, b_.Const({8})}), b_.Const({4, 8})});
  const int least = b_.Op("reduce_min", {sum}, {{"axes", Ints{-1}}, {"keepdims", int64_t{1}}});
  const int joined = b_.Op("concat", {least, least}, {{"axis", int64_t{-1}}});
  const Network after = Dropped(b_.Out({Rows(joined, -3, -1, 0)}));
  EXPECT_TRUE(changed_);
  EXPECT_EQ(LargestOf(after, "gemm"), 2 * 8);
  EXPECT_EQ(CountOps(after, "slice"), 3) << "of x, and of constants of four rows";
}

// perm may count from the end, and without one all axes are turned.
TEST_F(UnreadRowsTest, TranspositionsMayBeWrittenInAnyWay) {
  for (const Attributes& perm :
       {Attributes{{"perm", Ints{0, -1, 1}}}, Attributes{{"perm", Ints{0, 2, 1}}}, Attributes{}}) {
    GraphBuilder b;
    const bool all = perm.values().empty();
    const int turned = b.Op("transpose", {b.In(all ? Ints{6, 4, 2} : Ints{2, 6, 4})}, perm);
    const int sum = b.Op("add", {turned, b.Op("layer_norm", {b.In({2, 4, 6})}, {{"axis", int64_t{-1}}})});
    Network before = b.Out({b.Op("slice", {sum}, {{"axes", Ints{1}}, {"starts", Ints{1}}, {"ends", Ints{2}}})});
    Network after = before;
    EXPECT_TRUE(DropUnreadRows(after));
    ExpectSameResults(before, after);
    EXPECT_EQ(LargestOf(after, "layer_norm"), 2 * 6);
  }
}

TEST_F(UnreadRowsTest, ManyPathsAreLookedAtOnce) {
  int x = b_.In({1, 6, 6});
  for (int i = 0; i < 40; ++i) x = b_.Op("mul", {x, x});
  Network after = b_.Out({Rows(x, 0, 1)});
  EXPECT_FALSE(DropUnreadRows(after));
}

TEST_F(UnreadRowsTest, BatchesOfProductsAreDroppedToo) {
  const int product = b_.Op("matmul", {b_.In({4, 3, 6}), b_.In({4, 6, 5})});
  const int shared = b_.Op("matmul", {b_.In({4, 3, 6}), b_.In({1, 6, 5})});
  const Network after = Dropped(b_.Out({Rows(product, 1, 2, 0), Rows(shared, 0, 2, 0)}));
  EXPECT_EQ(LargestOf(after, "matmul"), 2 * 3 * 5);
  EXPECT_EQ(CountOps(after, "slice"), 3);
}

}  // namespace
}  // namespace diapason
