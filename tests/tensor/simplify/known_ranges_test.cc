#include "compiler/tensor/simplify/known_ranges.h"

#include <string>

#include "testing.h"

namespace diapason::simplify {
namespace {

class KnownRangesTest : public testing::Test {
 protected:
  KnownRangesTest() { ranges_ = {{x_.get(), {0, 9}}, {y_.get(), {-5, 5}}, {wide_.get(), {0, kLimit + 1}}}; }
  // The range of x where the condition holds, or does not.
  std::string Narrowed(const Expr& condition, bool holds) {
    const std::optional<KnownRanges> narrowed = KnownRanges(ranges_).Assuming(condition, holds);
    return narrowed ? RangeText(narrowed->Of(x_.get())) : "as before";
  }

  Expr x_ = MakeVar("x"), y_ = MakeVar("y"), wide_ = MakeVar("wide"), free_ = MakeVar("free");
  Ranges ranges_;
};

TEST_F(KnownRangesTest, AreThoseThatWereGivenUnlessTooWide) {
  const KnownRanges ranges(ranges_);
  EXPECT_EQ(RangeText(ranges.Of(x_.get())), "0..9");
  EXPECT_EQ(RangeText(ranges.Of(wide_.get())), "unknown");
  EXPECT_EQ(RangeText(ranges.Of(free_.get())), "unknown");
}

TEST_F(KnownRangesTest, ConditionsOfOneVariableNarrowIt) {
  EXPECT_EQ(Narrowed(Lt(x_, IntImm(4)), true), "0..3");
  EXPECT_EQ(Narrowed(Lt(x_, IntImm(4)), false), "4..9");
  EXPECT_EQ(Narrowed(Lt(IntImm(4), x_), true), "5..9");
  EXPECT_EQ(Narrowed(Lt(Mul(x_, IntImm(3)), IntImm(10)), true), "0..3");
  EXPECT_EQ(Narrowed(Eq(x_, IntImm(7)), true), "7..7");
  EXPECT_EQ(Narrowed(Not(Lt(x_, IntImm(4))), false), "0..3");
}

TEST_F(KnownRangesTest, BothPartsOfAnAndHoldButOnePartOfAnOr) {
  const Expr low = Lt(x_, IntImm(8)), high = Lt(IntImm(2), x_);
  EXPECT_EQ(Narrowed(And(low, high), true), "3..7");
  EXPECT_EQ(Narrowed(And(low, high), false), "as before");
  EXPECT_EQ(Narrowed(Or(low, high), true), "as before");
  EXPECT_EQ(Narrowed(Or(Lt(x_, IntImm(2)), Lt(IntImm(6), x_)), false), "2..6");
}

TEST_F(KnownRangesTest, NothingFollowsFromConditionsOfSeveralVariablesOrThatNeverHold) {
  EXPECT_EQ(Narrowed(Lt(x_, y_), true), "as before");
  EXPECT_EQ(Narrowed(Eq(x_, IntImm(7)), false), "as before");
  EXPECT_EQ(Narrowed(Lt(x_, IntImm(0)), true), "as before");
  EXPECT_EQ(Narrowed(Lt(free_, IntImm(0)), true), "as before");
}

// Narrows x to less and less under a condition each; returns how many did.
int Depth(const KnownRanges& ranges, const Expr& x, int64_t limit) {
  const std::optional<KnownRanges> narrowed = ranges.Assuming(Lt(x, IntImm(limit)), true);
  return narrowed ? 1 + Depth(*narrowed, x, limit - 1) : 0;
}

TEST_F(KnownRangesTest, NarrowsBelowEightConditionsAtMost) {
  ranges_[x_.get()] = {0, 99};
  EXPECT_EQ(Depth(KnownRanges(ranges_), x_, 99), 8);
}

}  // namespace
}  // namespace diapason::simplify
