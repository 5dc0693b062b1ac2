#include "compiler/tensor/simplify/sums.h"

#include <string>

#include "testing.h"

namespace diapason::simplify {
namespace {

class CanonicalSumsTest : public CanonicalTest {
 protected:
  CanonicalSumsTest() : CanonicalTest({0, 9}, {0, 7}) {}
  Affine Form(const Expr& e) { return ToAffine(interner_.Node(e)); }
  std::string Text(const Affine& a) { return ToString(interner_.Sum(a)); }
  static Expr Times(const Expr& e, int64_t factor) { return Mul(e, IntImm(factor)); }
};

TEST_F(CanonicalSumsTest, QuotientsAndRemaindersOfWhatIsSplitAlreadyAreItsParts) {
  const Affine sum = Form(Add(Times(x_, 8), y_));
  EXPECT_EQ(Text(sums_.Quotient(sum, 8)), "x");
  EXPECT_EQ(Text(sums_.Remainder(sum, 8)), "y");
  EXPECT_EQ(Text(sums_.Quotient(sum, 16)), "floordiv(x, 2)");
  EXPECT_EQ(Text(sums_.Quotient(sum, 1)), Text(sum));
  EXPECT_EQ(Text(sums_.Remainder(sum, 1)), "0");
}

TEST_F(CanonicalSumsTest, QuotientsOfQuotientsAreOne) {
  const Affine quotient = sums_.Quotient(Form(free_), 3);
  EXPECT_EQ(Text(sums_.Quotient(quotient, 4)), "floordiv(free, 12)");
}

TEST_F(CanonicalSumsTest, AQuotientAndItsRemainderAreTheNumber) {
  Affine sum = Scaled(sums_.Quotient(Form(free_), 5), 5);
  AddScaled(sum, sums_.Remainder(Form(free_), 5), 1);
  EXPECT_EQ(Text(sums_.Recombined(sum)), "free");
  Affine rest = Form(free_);
  AddScaled(rest, sums_.Quotient(Form(free_), 5), -5);
  EXPECT_EQ(Text(sums_.Recombined(rest)), "floormod(free, 5)");
}

TEST_F(CanonicalSumsTest, AnExtremumIsTheOperandThatBoundsShow) {
  const Affine x = Form(x_), y = Form(y_), beyond = Form(Add(x_, IntImm(1)));
  EXPECT_EQ(Text(sums_.Extremum(x, beyond, /*is_min=*/true)), "x");
  EXPECT_EQ(Text(sums_.Extremum(x, beyond, /*is_min=*/false)), "x + 1");
  EXPECT_EQ(Text(sums_.Extremum(x, y, /*is_min=*/true)), "min(x, y)");
}

TEST_F(CanonicalSumsTest, ProductsByNumbersAreSumsAndOthersAreTerms) {
  EXPECT_EQ(Text(sums_.Times(ConstantOf(3), Form(Add(x_, IntImm(2))))), "x * 3 + 6");
  EXPECT_EQ(Text(sums_.Times(Form(x_), Form(y_))), "x * y");
}

TEST_F(CanonicalSumsTest, SplitsByAFactorOnlyWhereTheRestIsKnownToBeSmaller) {
  Affine multiple, rest;
  ASSERT_TRUE(sums_.SplitByFactor(Form(Add(Add(Times(x_, 8), y_), IntImm(-16))), 8, &multiple, &rest));
  EXPECT_EQ(Text(multiple), "x - 2");
  EXPECT_EQ(Text(rest), "y");
  EXPECT_FALSE(sums_.SplitByFactor(Form(Add(Times(y_, 8), x_)), 8, &multiple, &rest));  // x may be 9
  EXPECT_FALSE(sums_.SplitByFactor(Form(Add(Times(y_, 8), free_)), 8, &multiple, &rest));
}

}  // namespace
}  // namespace diapason::simplify
