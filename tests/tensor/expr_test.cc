#include "compiler/tensor/expr.h"

#include <gtest/gtest.h>

#include <cmath>

namespace diapason {
namespace {

const Expr kX = MakeVar("x"), kY = MakeVar("y");
Expr I(int64_t value) { return IntImm(value); }

TEST(Expr, FoldsConstantsAndIdentities) {
  const std::pair<Expr, const char*> cases[] = {
      {Add(kX, I(0)), "x"},
      {Add(I(0), kX), "x"},
      {Add(Add(kX, I(3)), I(-3)), "x"},
      {Add(I(2), Add(kX, I(3))), "x + 5"},
      {Sub(kX, I(3)), "x - 3"},
      {Sub(kX, kX), "0"},
      {Mul(kX, I(1)), "x"},
      {Mul(kX, I(0)), "0"},
      {Mul(Mul(kX, I(2)), I(3)), "x * 6"},
      {FloorDiv(I(-7), 2), "-4"},
      {FloorMod(I(-7), 2), "1"},
      {FloorDiv(FloorDiv(kX, 2), 3), "floordiv(x, 6)"},
      {FloorMod(kX, 1), "0"},
      {Min(I(2), I(3)), "2"},
      {Max(kX, kX), "x"},
      {Lt(I(2), I(3)), "true"},
      {Le(kX, kX), "true"},
      {Not(Lt(kX, kY)), "y <= x"},
      {Not(Eq(kX, kY)), "x != y"},
      {And(Lt(kX, kY), Lt(I(2), I(3))), "x < y"},
      {Or(Lt(kX, kY), Lt(I(2), I(3))), "true"},
      {Select(Lt(I(2), I(3)), kX, kY), "x"},
      {Select(Lt(kX, kY), Add(kX, I(1)), Add(kX, I(1))), "x + 1"},
      {Cast(DType::kFloat32, I(3)), "3.0"},
      {Cast(DType::kInt8, I(300)), "44"},
      {Add(FloatImm(0.1), FloatImm(0.2)), "0.3"},
      {Mul(Load(0, DType::kFloat32, {kX}), FloatImm(1)), "T0[x]"},
  };
  for (const auto& [e, text] : cases) EXPECT_EQ(ToString(e), text);
}

TEST(Expr, FloatIdentitiesKeepNaN) {
  const Expr f = Load(0, DType::kFloat32, {kX});
  EXPECT_EQ(ToString(Mul(f, FloatImm(0))), "T0[x] * 0.0");
  EXPECT_EQ(ToString(Sub(f, f)), "T0[x] - T0[x]");
  EXPECT_EQ(ToString(Not(Lt(f, FloatImm(0)))), "!(T0[x] < 0.0)");
  EXPECT_EQ(ToString(Le(f, f)), "T0[x] <= T0[x]");
}

TEST(Expr, PrintsWithTheParenthesesThatAreNeeded) {
  EXPECT_EQ(ToString(Mul(Add(kX, kY), I(2))), "(x + y) * 2");
  EXPECT_EQ(ToString(Sub(kX, Sub(kY, kX))), "x - (y - x)");
  EXPECT_EQ(ToString(Sub(Sub(kX, kY), kX)), "x - y - x");
  EXPECT_EQ(ToString(Select(And(Lt(kX, kY), Ne(kX, I(3))), kX, Select(Lt(kY, kX), kY, I(0)))),
            "x < y && x != 3 ? x : y < x ? y : 0");
  EXPECT_EQ(ToString(Load(2, DType::kFloat32, {kX, kY}), [](int) { return "weight"; }), "weight[x, y]");
}

TEST(Expr, SubstituteReplacesVariablesAndSharesTheRest) {
  const Expr untouched = FloorMod(kY, 5);
  const Expr e = Add(Mul(kX, I(4)), untouched);
  const Expr replaced = Substitute(e, {{kX.get(), I(2)}});
  EXPECT_EQ(ToString(replaced), "floormod(y, 5) + 8");
  EXPECT_EQ(replaced->args[0], untouched);
  EXPECT_EQ(Substitute(e, {{MakeVar("x").get(), I(2)}}), e);
}

TEST(Expr, SubstituteIsLinearInSharedNodes) {
  Expr e = kX;
  for (int i = 0; i < 60; ++i) e = Add(e, FloorMod(e, 1000 + i));
  const Expr replaced = Substitute(e, {{kX.get(), kY}});
  EXPECT_NE(replaced, e);
}

TEST(Expr, EqualComparesStructureAndAddressesOfVariables) {
  EXPECT_TRUE(Equal(Add(kX, FloorDiv(kY, 2)), Add(kX, FloorDiv(kY, 2))));
  EXPECT_FALSE(Equal(Add(kX, kY), Add(kY, kX)));
  EXPECT_FALSE(Equal(kX, MakeVar("x")));
  EXPECT_FALSE(Equal(Load(1, DType::kFloat32, {kX}), Load(2, DType::kFloat32, {kX})));
  EXPECT_TRUE(Equal(FloatImm(NAN), FloatImm(NAN)));
  EXPECT_FALSE(Equal(FloatImm(0.0), FloatImm(-0.0)));
}

TEST(Expr, RewriteSeesChildrenRebuilt) {
  const Expr e = Add(FloorDiv(kX, 2), kY);
  const Expr doubled =
      Rewrite(e, [](const Expr& node) { return node->kind == ExprKind::kFloorDiv ? Mul(node, IntImm(2)) : node; });
  EXPECT_EQ(ToString(doubled), "floordiv(x, 2) * 2 + y");
  EXPECT_TRUE(UsesVar(doubled, kX.get()));
  EXPECT_FALSE(UsesVar(doubled, MakeVar("z").get()));
}

}  // namespace
}  // namespace diapason
