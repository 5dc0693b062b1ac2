#include "compiler/tensor/expr.h"

#include <gtest/gtest.h>

#include <cmath>

namespace diapason {
namespace {

const Expr x = MakeVar("x"), y = MakeVar("y");
Expr I(int64_t value) { return IntImm(value); }

TEST(Expr, FoldsConstantsAndIdentities) {
  const std::pair<Expr, const char*> cases[] = {
      {Add(x, I(0)), "x"},
      {Add(I(0), x), "x"},
      {Add(Add(x, I(3)), I(-3)), "x"},
      {Add(I(2), Add(x, I(3))), "x + 5"},
      {Sub(x, I(3)), "x - 3"},
      {Sub(x, x), "0"},
      {Mul(x, I(1)), "x"},
      {Mul(x, I(0)), "0"},
      {Mul(Mul(x, I(2)), I(3)), "x * 6"},
      {FloorDiv(I(-7), 2), "-4"},
      {FloorMod(I(-7), 2), "1"},
      {FloorDiv(FloorDiv(x, 2), 3), "floordiv(x, 6)"},
      {FloorMod(x, 1), "0"},
      {Min(I(2), I(3)), "2"},
      {Max(x, x), "x"},
      {Lt(I(2), I(3)), "true"},
      {Le(x, x), "true"},
      {Not(Lt(x, y)), "y <= x"},
      {Not(Eq(x, y)), "x != y"},
      {And(Lt(x, y), Lt(I(2), I(3))), "x < y"},
      {Or(Lt(x, y), Lt(I(2), I(3))), "true"},
      {Select(Lt(I(2), I(3)), x, y), "x"},
      {Select(Lt(x, y), Add(x, I(1)), Add(x, I(1))), "x + 1"},
      {Cast(DType::kFloat32, I(3)), "3.0"},
      {Cast(DType::kInt8, I(300)), "44"},
      {Add(FloatImm(0.1), FloatImm(0.2)), "0.3"},
      {Mul(Load(0, DType::kFloat32, {x}), FloatImm(1)), "T0[x]"},
  };
  for (const auto& [e, text] : cases) EXPECT_EQ(ToString(e), text);
}

TEST(Expr, FloatIdentitiesKeepNaN) {
  const Expr f = Load(0, DType::kFloat32, {x});
  EXPECT_EQ(ToString(Mul(f, FloatImm(0))), "T0[x] * 0.0");
  EXPECT_EQ(ToString(Sub(f, f)), "T0[x] - T0[x]");
  EXPECT_EQ(ToString(Not(Lt(f, FloatImm(0)))), "!(T0[x] < 0.0)");
  EXPECT_EQ(ToString(Le(f, f)), "T0[x] <= T0[x]");
}

TEST(Expr, PrintsWithTheParenthesesThatAreNeeded) {
  EXPECT_EQ(ToString(Mul(Add(x, y), I(2))), "(x + y) * 2");
  EXPECT_EQ(ToString(Sub(x, Sub(y, x))), "x - (y - x)");
  EXPECT_EQ(ToString(Sub(Sub(x, y), x)), "x - y - x");
  EXPECT_EQ(ToString(Select(And(Lt(x, y), Ne(x, I(3))), x, Select(Lt(y, x), y, I(0)))),
            "x < y && x != 3 ? x : y < x ? y : 0");
  EXPECT_EQ(ToString(Load(2, DType::kFloat32, {x, y}), [](int) { return "weight"; }), "weight[x, y]");
}

TEST(Expr, SubstituteReplacesVariablesAndSharesTheRest) {
  const Expr untouched = FloorMod(y, 5);
  const Expr e = Add(Mul(x, I(4)), untouched);
  const Expr replaced = Substitute(e, {{x.get(), I(2)}});
  EXPECT_EQ(ToString(replaced), "floormod(y, 5) + 8");
  EXPECT_EQ(replaced->args[0], untouched);
  EXPECT_EQ(Substitute(e, {{MakeVar("x").get(), I(2)}}), e);
}

TEST(Expr, SubstituteIsLinearInSharedNodes) {
  Expr e = x;
  for (int i = 0; i < 60; ++i) e = Add(e, FloorMod(e, 1000 + i));
  const Expr replaced = Substitute(e, {{x.get(), y}});
  EXPECT_NE(replaced, e);
}

TEST(Expr, EqualComparesStructureAndAddressesOfVariables) {
  EXPECT_TRUE(Equal(Add(x, FloorDiv(y, 2)), Add(x, FloorDiv(y, 2))));
  EXPECT_FALSE(Equal(Add(x, y), Add(y, x)));
  EXPECT_FALSE(Equal(x, MakeVar("x")));
  EXPECT_FALSE(Equal(Load(1, DType::kFloat32, {x}), Load(2, DType::kFloat32, {x})));
  EXPECT_TRUE(Equal(FloatImm(NAN), FloatImm(NAN)));
  EXPECT_FALSE(Equal(FloatImm(0.0), FloatImm(-0.0)));
}

TEST(Expr, RewriteSeesChildrenRebuilt) {
  const Expr e = Add(FloorDiv(x, 2), y);
  const Expr doubled =
      Rewrite(e, [](const Expr& node) { return node->kind == ExprKind::kFloorDiv ? Mul(node, IntImm(2)) : node; });
  EXPECT_EQ(ToString(doubled), "floordiv(x, 2) * 2 + y");
  EXPECT_TRUE(UsesVar(doubled, x.get()));
  EXPECT_FALSE(UsesVar(doubled, MakeVar("z").get()));
}

}  // namespace
}  // namespace diapason
