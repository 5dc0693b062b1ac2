#include "compiler/graph/passes/canonical_arithmetic.h"

#include "testing.h"

namespace diapason {
namespace {

bool RewriteArithmetic(Network& network, size_t n) { return RewriteNode(CanonicalizeArithmetic, network, n); }

Array Scalar(double value) {
  Array array(DType::kFloat32, {});
  array.set(0, value);
  return array;
}

TEST(CanonicalArithmetic, AnOperandThatChangesNothingGoes) {
  const struct {
    const char* op;
    double neutral;
    bool first;
  } cases[] = {{"add", 0, true}, {"add", 0, false}, {"sub", 0, false}, {"mul", 1, true}, {"div", 1, false}};
  for (const auto& c : cases) {
    GraphBuilder b;
    const int x = b.Op("neg", {b.In({2})}), neutral = b.n.AddConstant("n", Scalar(c.neutral));
    const int y = b.Op(c.op, c.first ? std::vector<int>{neutral, x} : std::vector<int>{x, neutral});
    Network network = b.Out({b.Op("exp", {y})});
    EXPECT_TRUE(RewriteArithmetic(network, 1)) << c.op;
    ASSERT_EQ(network.nodes.size(), 2u) << c.op;
    EXPECT_EQ(network.nodes[1].inputs, std::vector<int>{x}) << c.op;
  }
}

TEST(CanonicalArithmetic, OperandsThatChangeSomethingStay) {
  const struct {
    const char* op;
    double value;
    bool first;
  } cases[] = {{"add", 1, true}, {"sub", 0, true}, {"mul", 0, true}, {"div", 2, true}};
  for (const auto& c : cases) {
    GraphBuilder b;
    const int x = b.In({2}), value = b.n.AddConstant("v", Scalar(c.value));
    Network network = b.Out({b.Op(c.op, c.first ? std::vector<int>{value, x} : std::vector<int>{x, value})});
    const std::string before = network.ToString();
    EXPECT_FALSE(RewriteArithmetic(network, 0)) << c.op;
    EXPECT_EQ(network.ToString(), before);
  }
}

TEST(CanonicalArithmetic, AConstantOfOneElementBecomesAScalar) {
  GraphBuilder b;
  const int x = b.In({2, 3}), c = b.Const({1, 1});
  Network before = b.Out({b.Op("mul", {x, c})});
  Network after = before;
  EXPECT_TRUE(RewriteArithmetic(after, 0));
  EXPECT_EQ(after.tensors[after.nodes[0].inputs[1]].type.shape, Ints{});
  ExpectSameResults(before, after);
}

TEST(CanonicalArithmetic, GemmTakesItsConstantsAsTheyAreUsed) {
  GraphBuilder b;
  const int x = b.In({2, 3}), w = b.Const({4, 3}), bias = b.Const({4});
  Network before = b.Out({b.Op("gemm", {x, w, bias}, {{"trans_b", int64_t{1}}, {"alpha", 0.5}, {"beta", 2.0}})});
  Network after = before;
  EXPECT_TRUE(RewriteArithmetic(after, 0));
  const Node& gemm = after.nodes[0];
  for (const char* name : {"trans_b", "alpha", "beta"}) EXPECT_FALSE(gemm.attributes.has(name)) << name;
  EXPECT_EQ(after.tensors[gemm.inputs[1]].type.shape, (Ints{3, 4}));
  ExpectSameResults(before, after);
  EXPECT_FALSE(RewriteArithmetic(after, 0));
}

TEST(CanonicalArithmetic, PaddingGoesIntoTheConvolutionOnlyIfItPadsTheImage) {
  for (const bool channels : {false, true}) {
    GraphBuilder b;
    const Ints pads = channels ? Ints{0, 1, 0, 0, 0, 0, 0, 0} : Ints{0, 0, 1, 2, 0, 0, 1, 0};
    const int x = b.Op("pad", {b.In({1, 2, 5, 5})}, {{"pads", pads}});
    Network before = b.Out({b.Op("conv2d", {x, b.Const({3, channels ? 3 : 2, 3, 3})})});
    Network after = before;
    EXPECT_EQ(RewriteArithmetic(after, 1), !channels);
    EXPECT_EQ(after.nodes.size(), channels ? 2u : 1u);
    const Ints padded = channels ? Ints{0, 1, 0, 0, 0, 0, 0, 0} : Ints{1, 2, 1, 0};
    EXPECT_EQ(after.nodes[0].attributes.Ints("pads", {}), padded);
    ExpectSameResults(before, after);
  }
}

}  // namespace
}  // namespace diapason
