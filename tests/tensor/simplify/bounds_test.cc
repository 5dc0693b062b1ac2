#include "compiler/tensor/simplify/bounds.h"

#include <string>

#include "testing.h"

namespace diapason::simplify {
namespace {

class CanonicalBoundsTest : public CanonicalTest {
 protected:
  CanonicalBoundsTest() : CanonicalTest({0, 9}, {-5, 5}) {}
  std::string Bounds(const Expr& e) { return RangeText(bounds_.Of(e)); }
  static Expr Int(int64_t value) { return IntImm(value); }
};

TEST_F(CanonicalBoundsTest, SumsAddUpTheEndsOfTheirTerms) {
  EXPECT_EQ(Bounds(Int(7)), "7..7");
  EXPECT_EQ(Bounds(Add(Mul(x_, Int(3)), Int(2))), "2..29");
  EXPECT_EQ(Bounds(Sub(x_, Mul(y_, Int(2)))), "-10..19");
}

TEST_F(CanonicalBoundsTest, QuotientsRoundDownAndRemaindersStayBelowTheDivisor) {
  EXPECT_EQ(Bounds(FloorDiv(y_, 4)), "-2..1");
  EXPECT_EQ(Bounds(FloorMod(x_, 4)), "0..3");
  EXPECT_EQ(Bounds(FloorMod(Add(x_, Int(20)), 32)), "20..29");  // within one period
  EXPECT_EQ(Bounds(FloorMod(free_, 4)), "0..3");
}

TEST_F(CanonicalBoundsTest, ChoicesSpanWhatTheyChooseFrom) {
  EXPECT_EQ(Bounds(Min(x_, y_)), "-5..5");
  EXPECT_EQ(Bounds(Max(x_, y_)), "0..9");
  EXPECT_EQ(Bounds(Select(Lt(x_, y_), x_, Int(-3))), "-3..9");
  EXPECT_EQ(Bounds(Lt(x_, y_)), "0..1");
}

TEST_F(CanonicalBoundsTest, CastsKeepValuesThatFit) {
  EXPECT_EQ(Bounds(Cast(DType::kInt8, x_)), "0..9");
  EXPECT_EQ(Bounds(Cast(DType::kInt8, Mul(x_, Int(100)))), "unknown");
}

TEST_F(CanonicalBoundsTest, AreUnknownWhereAPartIsOrWhereTheyAreTooLarge) {
  EXPECT_EQ(Bounds(Add(x_, free_)), "unknown");
  EXPECT_EQ(Bounds(Min(x_, free_)), "unknown");
  EXPECT_EQ(Bounds(Mul(x_, Int(kLimit))), "unknown");
}

}  // namespace
}  // namespace diapason::simplify
