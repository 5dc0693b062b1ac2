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

// Ways in which exporters write GELU, with `half` in place of 0.5, and what is inside of the function times `wrong`.
class GeluNetwork {
 public:
  enum class Form { kHalfLast, kHalfFirst, kTanh, kTanhOfPowers, kTanhOfProduct };

  static Network Of(Form form, double half = 0.5, double wrong = 1) {
    GeluNetwork g;
    const int x = g.x_;
    if (form == Form::kHalfLast) {
      const int sum = g.Add(g.b_.Op("erf", {g.b_.Op("div", {x, g.Number(1.4142135381698608 * wrong)})}), 1);
      return g.b_.Out({g.Times(g.Times(x, sum), half)});
    }
    if (form == Form::kHalfFirst) {
      const int sum = g.Add(g.b_.Op("erf", {g.Times(x, 0.70710678118 * wrong)}), 1);
      return g.b_.Out({g.Times(g.Times(x, half), sum)});
    }
    int inner;
    if (form == Form::kTanhOfProduct) {
      const int sum = g.Add(g.Times(g.Times(x, 0.044715), x), 1);
      inner = g.Times(g.Times(x, 0.79788458347320557 * wrong), sum);
    } else {
      const int cube = form == Form::kTanh ? g.Times(g.Times(x, x), x) : g.b_.Op("pow", {x, g.Number(3)});
      inner = g.Times(g.b_.Op("add", {x, g.Times(cube, 0.044715)}), 0.79788458347320557 * wrong);
    }
    return g.b_.Out({g.Times(g.Times(x, half), g.Add(g.b_.Op("tanh", {inner}), 1))});
  }

 private:
  int Number(double value) { return b_.n.AddConstant("number", Scalar(value)); }
  int Times(int x, int y) { return b_.Op("mul", {x, y}); }
  int Times(int x, double value) { return b_.Op("mul", {x, Number(value)}); }
  int Add(int x, double value) { return b_.Op("add", {x, Number(value)}); }

  GraphBuilder b_;
  const int x_ = b_.In({2, 3});
};

TEST(CanonicalArithmetic, GeluInPartsBecomesOneOperator) {
  using Form = GeluNetwork::Form;
  for (const Form form : {Form::kHalfLast, Form::kHalfFirst, Form::kTanh, Form::kTanhOfPowers, Form::kTanhOfProduct}) {
    const Network before = GeluNetwork::Of(form);
    Network after = before;
    EXPECT_TRUE(RewriteArithmetic(after, after.nodes.size() - 1));
    ASSERT_EQ(after.nodes.size(), 1u) << after.ToString();
    EXPECT_EQ(after.nodes[0].op, form == Form::kHalfLast || form == Form::kHalfFirst ? "gelu" : "gelu_tanh");
    ExpectSameResults(before, after, 1e-6);
  }
}

TEST(CanonicalArithmetic, WhatIsNearlyGeluStays) {
  using Form = GeluNetwork::Form;
  for (const Form form : {Form::kHalfLast, Form::kHalfFirst, Form::kTanh, Form::kTanhOfPowers, Form::kTanhOfProduct}) {
    for (const auto& [half, wrong] : {std::pair{0.51, 1.0}, {0.5, 1.01}}) {
      Network network = GeluNetwork::Of(form, half, wrong);
      EXPECT_FALSE(RewriteArithmetic(network, network.nodes.size() - 1)) << network.ToString();
    }
  }
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
