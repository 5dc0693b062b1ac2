#include "compiler/tensor/simplify/conditions.h"

#include <string>

#include "testing.h"

namespace diapason::simplify {
namespace {

class CanonicalConditionsTest : public CanonicalTest {
 protected:
  CanonicalConditionsTest() : CanonicalTest({0, 9}, {0, 3}) {}
  Expr Less(const Expr& e) { return conditions_.LessThanZero(ToAffine(e)); }
  Expr Zero(const Expr& e) { return conditions_.EqualsZero(ToAffine(e)); }
  std::string Both(const Expr& a, const Expr& b) { return ToString(conditions_.Conjunction(a, b)); }

  CanonicalConditions conditions_{interner_, bounds_, sums_};
};

TEST_F(CanonicalConditionsTest, BoundsDecideOrders) {
  EXPECT_TRUE(IsInt(Less(Sub(x_, IntImm(10))), 1));
  EXPECT_TRUE(IsInt(Less(x_), 0));
  EXPECT_EQ(ToString(Less(Sub(x_, IntImm(9)))), "x < 9");
}

TEST_F(CanonicalConditionsTest, OrdersOfWholeTilesAreThoseOfTheTiles) {
  EXPECT_EQ(ToString(Less(Sub(Add(Mul(free_, IntImm(4)), y_), IntImm(8)))), "free < 2");
  EXPECT_EQ(ToString(Less(Sub(FloorDiv(free_, 4), IntImm(2)))), "free < 8");
}

TEST_F(CanonicalConditionsTest, EqualitiesThatNoValueFulfilsAreFalse) {
  EXPECT_TRUE(IsInt(Zero(Sub(x_, IntImm(10))), 0));
  EXPECT_TRUE(IsInt(Zero(Sub(Mul(free_, IntImm(4)), IntImm(6))), 0));
  EXPECT_EQ(ToString(Zero(Sub(Mul(free_, IntImm(4)), IntImm(8)))), "free == 2");
}

TEST_F(CanonicalConditionsTest, TheStrongerPartOfAnAndStays) {
  const Expr weak = Less(Sub(x_, IntImm(8))), strong = Less(Sub(x_, IntImm(3)));
  EXPECT_EQ(Both(weak, strong), "x < 3");
  EXPECT_EQ(Both(strong, weak), "x < 3");
  EXPECT_EQ(Both(strong, strong), "x < 3");
  EXPECT_EQ(Both(Bool(true), weak), "x < 8");
}

TEST_F(CanonicalConditionsTest, ContradictionsAreFalseAndTautologiesTrue) {
  const Expr low = Less(Sub(x_, IntImm(3))), high = Less(Sub(IntImm(5), x_));
  EXPECT_TRUE(IsInt(conditions_.Conjunction(low, high), 0));
  EXPECT_TRUE(IsInt(conditions_.Conjunction(low, Not(low)), 0));
  std::vector<Expr> parts;
  for (const Expr& part : {low, Not(low)}) conditions_.AddPart(part, ExprKind::kOr, parts);
  EXPECT_TRUE(IsInt(conditions_.Joined(parts, ExprKind::kOr), 1));
  parts.clear();
  for (const Expr& part : {low, high}) conditions_.AddPart(part, ExprKind::kOr, parts);
  EXPECT_EQ(parts.size(), 2u);
}

}  // namespace
}  // namespace diapason::simplify
