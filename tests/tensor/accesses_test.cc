#include "compiler/tensor/accesses.h"

#include <gtest/gtest.h>

#include "compiler/tensor/serialize.h"

namespace diapason {
namespace {

using Vars = DagBuilder::Vars;

// As it arrives: equal expressions are one.
absl::Status Check(DagBuilder& b, int output) {
  return CheckAccesses(ParseDag(SerializeDag(b.Build({output}).value())).value());
}

absl::Status CheckRead(int64_t extent, int64_t points, const std::function<Expr(DagBuilder&, int, const Vars&)>& body) {
  DagBuilder b;
  const int x = b.Placeholder("x", {extent});
  return Check(b, b.Compute("y", {points}, [&](const Vars& i) { return body(b, x, i); }));
}

TEST(Accesses, WithinTheTensorForAllPoints) {
  EXPECT_TRUE(CheckRead(8, 8, [](auto& b, int x, auto& i) { return b.At(x, {i[0]}); }).ok());
  EXPECT_TRUE(CheckRead(15, 8, [](auto& b, int x, auto& i) { return b.At(x, {Mul(i[0], IntImm(2))}); }).ok());
  EXPECT_TRUE(CheckRead(3, 8, [](auto& b, int x, auto& i) { return b.At(x, {FloorMod(i[0], 3)}); }).ok());
  EXPECT_EQ(CheckRead(7, 8, [](auto& b, int x, auto& i) { return b.At(x, {i[0]}); }),
            absl::InvalidArgumentError("stage 'y' reads 'x' at index 0 = i0, which is not proven to be from 0 to 6"));
  EXPECT_FALSE(CheckRead(8, 8, [](auto& b, int x, auto& i) { return b.At(x, {Sub(i[0], IntImm(1))}); }).ok());
  EXPECT_FALSE(
      CheckRead(8, 8, [](auto& b, int x, auto& i) { return b.At(x, {Mul(i[0], IntImm(int64_t{1} << 62))}); }).ok());
}

TEST(Accesses, UnderTheConditionsAround) {
  const auto padded = [](int64_t before, int64_t after) {
    return CheckRead(8, 12, [&](auto& b, int x, auto& i) {
      const Expr inside = And(Le(IntImm(before), i[0]), Lt(i[0], IntImm(after)));
      return Select(inside, b.At(x, {Sub(i[0], IntImm(2))}), FloatImm(0));
    });
  };
  EXPECT_TRUE(padded(2, 10).ok());
  EXPECT_FALSE(padded(1, 10).ok());
  EXPECT_FALSE(padded(2, 11).ok());
  // What is read where the condition does not hold.
  EXPECT_TRUE(CheckRead(8, 12, [](auto& b, int x, auto& i) {
                return Select(Le(IntImm(8), i[0]), FloatImm(0), b.At(x, {i[0]}));
              }).ok());
  EXPECT_FALSE(CheckRead(8, 12, [](auto& b, int x, auto& i) {
                 return Select(Le(IntImm(9), i[0]), FloatImm(0), b.At(x, {i[0]}));
               }).ok());
  // Told by trying.
  EXPECT_TRUE(CheckRead(4, 12, [](auto& b, int x, auto& i) {
                return Select(Eq(FloorMod(i[0], 3), IntImm(0)), b.At(x, {FloorDiv(i[0], 3)}), FloatImm(0));
              }).ok());
}

TEST(Accesses, AtIndicesThatAreRead) {
  const auto gathered = [](int64_t min, int64_t max) {
    DagBuilder b;
    const int x = b.Placeholder("x", {10}), at = b.Placeholder("at", {4}, DType::kInt32);
    b.stage(at).valid_min = min;
    b.stage(at).valid_max = max;
    return Check(b, b.Compute("y", {4}, [&](const Vars& i) {
      const Expr index = Cast(DType::kInt64, b.At(at, {i[0]}));
      return b.At(x, {Select(Lt(index, IntImm(0)), Add(index, IntImm(10)), index)});
    }));
  };
  EXPECT_TRUE(gathered(-10, 9).ok());
  EXPECT_FALSE(gathered(-11, 9).ok());
  EXPECT_FALSE(gathered(-10, 10).ok());
  EXPECT_FALSE(gathered(INT64_MIN, INT64_MAX).ok());
}

// The last of many updates of each place, as a scatter has it: -1 where there is none.
// A number may be anything, so that only a clamp behind it makes it an index.
TEST(Accesses, AtNumbersThatAreClamped) {
  const auto number = [](auto& b, int x, auto& i) { return Cast(DType::kInt64, b.At(x, {i[0]})); };
  const auto clamped = [](Expr e, int64_t low, int64_t high) {
    return Min(Max(std::move(e), IntImm(low)), IntImm(high));
  };
  EXPECT_TRUE(CheckRead(8, 8, [&](auto& b, int x, auto& i) { return b.At(x, {clamped(number(b, x, i), 0, 7)}); }).ok());
  EXPECT_TRUE(CheckRead(8, 8, [&](auto& b, int x, auto& i) {
                return b.At(x, {Add(clamped(number(b, x, i), 0, 6), IntImm(1))});
              }).ok());
  EXPECT_FALSE(
      CheckRead(8, 8, [&](auto& b, int x, auto& i) { return b.At(x, {clamped(number(b, x, i), 0, 8)}); }).ok());
  EXPECT_FALSE(
      CheckRead(8, 8, [&](auto& b, int x, auto& i) { return b.At(x, {clamped(number(b, x, i), -1, 7)}); }).ok());
  EXPECT_FALSE(
      CheckRead(8, 8, [&](auto& b, int x, auto& i) { return b.At(x, {Min(number(b, x, i), IntImm(7))}); }).ok());
  EXPECT_FALSE(CheckRead(8, 8, [&](auto& b, int x, auto& i) {
                 return b.At(x, {Add(clamped(number(b, x, i), 0, 7), IntImm(1))});
               }).ok());
}

TEST(Accesses, AtPositionsThatAReductionFound) {
  const auto scattered = [](int64_t none, int64_t least) {
    DagBuilder b;
    const int64_t updates = int64_t{1} << 20;
    const int x = b.Placeholder("x", {updates}), at = b.Placeholder("at", {updates}, DType::kInt64);
    b.stage(at).valid_max = 9;
    const int last = b.Reduce("last", {10}, {updates}, Combiner::kMax, [&](const Vars& i, const Vars& r) {
      return Select(Eq(b.At(at, {r[0]}), i[0]), r[0], IntImm(none));
    });
    return Check(b, b.Compute("y", {10}, [&](const Vars& i) {
      const Expr position = b.At(last, i);
      return Select(Le(IntImm(least), position), b.At(x, {FloorDiv(Mul(position, IntImm(2)), 2)}), FloatImm(0));
    }));
  };
  EXPECT_TRUE(scattered(-1, 0).ok());
  EXPECT_TRUE(scattered(0, -1).ok());
  EXPECT_FALSE(scattered(-1, -1).ok());
  EXPECT_FALSE(scattered(int64_t{1} << 20, 0).ok());
}

// A sum of 32 bits wraps around, half of it is far below 0.
TEST(Accesses, AtIndicesThatWrap) {
  const auto read = [](int64_t most) {
    DagBuilder b;
    const int x = b.Placeholder("x", {int64_t{1} << 33}), at = b.Placeholder("at", {4}, DType::kInt32);
    b.stage(at).valid_max = most;
    return Check(b, b.Compute("y", {4}, [&](const Vars& i) {
      const Expr index = b.At(at, {i[0]});
      return b.At(x, {Cast(DType::kInt64, FloorDiv(Add(index, index), 2))});
    }));
  };
  EXPECT_TRUE(read(1 << 20).ok());
  EXPECT_FALSE(read(INT32_MAX).ok());
}

}  // namespace
}  // namespace diapason
