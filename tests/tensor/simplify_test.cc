#include "compiler/tensor/simplify.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

namespace diapason {
namespace {

using Point = std::unordered_map<const ExprNode*, int64_t>;

int64_t FloorDivOf(int64_t a, int64_t b) { return a / b - (a % b < 0); }

// What an integer expression is worth at a point.
int64_t Evaluate(const Expr& e, const Point& point) {
  auto arg = [&](int i) { return Evaluate(e->args[i], point); };
  switch (e->kind) {
    case ExprKind::kIntImm: return e->value;
    case ExprKind::kVar: return point.at(e.get());
    case ExprKind::kAdd: return arg(0) + arg(1);
    case ExprKind::kSub: return arg(0) - arg(1);
    case ExprKind::kMul: return arg(0) * arg(1);
    case ExprKind::kFloorDiv: return FloorDivOf(arg(0), arg(1));
    case ExprKind::kFloorMod: return arg(0) - FloorDivOf(arg(0), arg(1)) * arg(1);
    case ExprKind::kMin: return std::min(arg(0), arg(1));
    case ExprKind::kMax: return std::max(arg(0), arg(1));
    case ExprKind::kLt: return arg(0) < arg(1);
    case ExprKind::kLe: return arg(0) <= arg(1);
    case ExprKind::kEq: return arg(0) == arg(1);
    case ExprKind::kNe: return arg(0) != arg(1);
    case ExprKind::kAnd: return arg(0) && arg(1);
    case ExprKind::kOr: return arg(0) || arg(1);
    case ExprKind::kNot: return !arg(0);
    case ExprKind::kSelect: return arg(0) ? arg(1) : arg(2);
    case ExprKind::kCast: return arg(0);
    default: ADD_FAILURE() << "cannot evaluate " << ToString(e); return 0;
  }
}

class SimplifyTest : public testing::Test {
 protected:
  SimplifyTest() {
    analyzer.Bind(x, 4);
    analyzer.Bind(y, 10);
    analyzer.Bind(z, 100);
    analyzer.Bind(one, 1);
  }
  std::string Simplified(const Expr& e) { return ToString(analyzer.Simplify(e)); }
  static Expr I(int64_t value) { return IntImm(value); }
  static Expr Times(const Expr& e, int64_t factor) { return Mul(e, IntImm(factor)); }

  Analyzer analyzer;
  Expr x = MakeVar("x"), y = MakeVar("y"), z = MakeVar("z"), one = MakeVar("one");
  Expr free = MakeVar("free");  // nothing is known of it
};

TEST_F(SimplifyTest, CollectsSums) {
  EXPECT_EQ(Simplified(Sub(Add(Times(Add(x, y), 3), I(5)), Add(Times(x, 2), I(6)))), "x + y * 3 - 1");
  EXPECT_EQ(Simplified(Sub(Add(x, y), Add(y, x))), "0");
  EXPECT_EQ(Simplified(Sub(I(7), x)), "7 - x");
  EXPECT_EQ(Simplified(Add(one, x)), "x");
}

TEST_F(SimplifyTest, CancelsQuotientsByRanges) {
  const Expr e = Add(Add(Times(y, 8), Times(x, 2)), I(1));
  EXPECT_EQ(Simplified(FloorDiv(e, 8)), "y");
  EXPECT_EQ(Simplified(FloorMod(e, 8)), "x * 2 + 1");
  EXPECT_EQ(Simplified(FloorMod(x, 4)), "x");
  EXPECT_EQ(Simplified(FloorDiv(x, 4)), "0");
  EXPECT_EQ(Simplified(FloorDiv(Sub(x, I(4)), 4)), "-1");
  EXPECT_EQ(Simplified(FloorDiv(Sub(I(3), x), 4)), "0");
}

TEST_F(SimplifyTest, DividesCommonFactors) {
  EXPECT_EQ(Simplified(FloorDiv(Add(Times(z, 4), x), 12)), "floordiv(z, 3)");
  EXPECT_EQ(Simplified(FloorMod(Add(Times(z, 4), x), 12)), "x + floormod(z, 3) * 4");
  EXPECT_EQ(Simplified(FloorDiv(Times(z, 6), 4)), "z + floordiv(z, 2)");
  EXPECT_EQ(Simplified(FloorDiv(Add(Times(z, 64), Times(x, 16)), 56 * 56)), "floordiv(z, 49)");
}

TEST_F(SimplifyTest, FlattensNestedQuotientsAndRemainders) {
  EXPECT_EQ(Simplified(FloorDiv(Add(FloorDiv(free, 3), I(2)), 5)), "floordiv(free + 6, 15)");
  EXPECT_EQ(Simplified(FloorMod(FloorMod(free, 12), 4)), "floormod(free, 4)");
  EXPECT_EQ(Simplified(FloorDiv(FloorMod(free, 12), 4)), "floormod(floordiv(free, 4), 3)");
  EXPECT_EQ(Simplified(FloorMod(Add(FloorMod(free, 12), x), 4)), "floormod(x + free, 4)");
}

TEST_F(SimplifyTest, RecombinesQuotientAndRemainder) {
  EXPECT_EQ(Simplified(Add(Times(FloorDiv(free, 7), 7), FloorMod(free, 7))), "free");
  EXPECT_EQ(Simplified(Add(Times(FloorDiv(z, 7), 14), Times(FloorMod(z, 7), 2))), "z * 2");
  EXPECT_EQ(Simplified(Sub(z, Times(FloorDiv(z, 7), 7))), "floormod(z, 7)");
  const Expr f = MakeVar("f");  // a fused loop taken apart and put together
  const Expr fused = Add(Add(Times(FloorDiv(f, 12), 12), Times(FloorDiv(FloorMod(f, 12), 4), 4)), FloorMod(f, 4));
  EXPECT_EQ(Simplified(fused), "f");
  const Expr offset = Add(Times(y, 8), z);
  EXPECT_EQ(Simplified(Add(Times(FloorDiv(offset, 8), 8), FloorMod(offset, 8))), "y * 8 + z");
}

TEST_F(SimplifyTest, NumeratorsAreNotNegativeWhereBoundsAreKnown) {
  EXPECT_EQ(Simplified(FloorDiv(Sub(z, I(1)), 7)), "floordiv(z + 6, 7) - 1");
  EXPECT_EQ(Simplified(FloorMod(Sub(z, I(1)), 7)), "floormod(z + 6, 7)");
}

TEST_F(SimplifyTest, DecidesComparisons) {
  EXPECT_EQ(Simplified(Lt(Times(x, 4), I(8))), "x < 2");
  EXPECT_EQ(Simplified(Lt(x, I(4))), "true");
  EXPECT_EQ(Simplified(Le(I(4), x)), "false");
  EXPECT_EQ(Simplified(Lt(Add(x, y), Add(y, I(4)))), "true");
  EXPECT_EQ(Simplified(Lt(Add(Times(y, 4), x), I(28))), "y < 7");
  EXPECT_EQ(Simplified(Le(I(28), Add(Times(y, 4), x))), "6 < y");
  EXPECT_EQ(Simplified(Lt(FloorDiv(z, 7), I(3))), "z < 21");
  EXPECT_EQ(Simplified(Lt(I(3), FloorDiv(z, 7))), "27 < z");
  EXPECT_EQ(Simplified(Eq(Times(x, 2), I(3))), "false");
  EXPECT_EQ(Simplified(Eq(Times(y, 2), I(6))), "y == 3");
  EXPECT_EQ(Simplified(Ne(Add(x, I(1)), I(0))), "true");
  EXPECT_EQ(Simplified(Eq(Add(Times(y, 4), Add(x, I(1))), I(0))), "false");
}

TEST_F(SimplifyTest, SimplifiesLogic) {
  EXPECT_EQ(Simplified(And(Lt(z, I(5)), Lt(z, I(7)))), "z < 5");
  EXPECT_EQ(Simplified(Or(Lt(z, I(5)), Lt(z, I(7)))), "z < 7");
  EXPECT_EQ(Simplified(And(Lt(z, I(5)), Le(I(5), z))), "false");
  EXPECT_EQ(Simplified(Or(Lt(z, I(5)), Le(I(5), z))), "true");
  EXPECT_EQ(Simplified(And(Lt(x, I(4)), Lt(z, I(5)))), "z < 5");
  EXPECT_EQ(Simplified(Not(Lt(z, I(5)))), "4 < z");
}

TEST_F(SimplifyTest, SimplifiesSelectsWithTheirConditions) {
  EXPECT_EQ(Simplified(Select(Lt(z, I(4)), FloorMod(z, 4), I(0))), "z < 4 ? z : 0");
  EXPECT_EQ(Simplified(Select(Lt(z, I(4)), I(0), Max(z, I(4)))), "z < 4 ? 0 : z");
  EXPECT_EQ(Simplified(Select(Eq(z, I(4)), Add(z, x), I(0))), "z == 4 ? x + 4 : 0");
  EXPECT_EQ(Simplified(Select(Lt(z, I(9)), Select(Lt(y, I(3)), x, I(0)), I(0))), "z < 9 && y < 3 ? x : 0");
  EXPECT_EQ(Simplified(Select(Lt(x, I(4)), y, z)), "y");
}

TEST_F(SimplifyTest, WorksInsideLoadsAndFloats) {
  const Expr load = Load(3, DType::kFloat32, {FloorDiv(Add(Times(y, 4), x), 4)});
  EXPECT_EQ(Simplified(Call("exp", {Add(load, FloatImm(2))})), "exp(T3[y] + 2.0)");
}

TEST_F(SimplifyTest, MinAndMaxByBounds) {
  EXPECT_EQ(Simplified(Min(x, I(3))), "x");
  EXPECT_EQ(Simplified(Max(Add(y, x), y)), "y + x");
  EXPECT_EQ(Simplified(Min(z, I(3))), "min(z, 3)");
}

TEST_F(SimplifyTest, BoundsAndDivisors) {
  auto bounds = analyzer.Bounds(Sub(FloorDiv(z, 7), Times(x, 2)));
  ASSERT_TRUE(bounds.has_value());
  EXPECT_EQ(bounds->min, -6);
  EXPECT_EQ(bounds->max, 14);
  EXPECT_FALSE(analyzer.Bounds(free).has_value());
  EXPECT_EQ(analyzer.Bounds(FloorMod(free, 9))->max, 8);
  EXPECT_EQ(analyzer.KnownDivisor(Add(Times(free, 12), Times(FloorMod(Times(free, 4), 16), 2))), 4);
  EXPECT_EQ(analyzer.KnownDivisor(Sub(x, x)), 0);
  EXPECT_TRUE(analyzer.Proves(Lt(Add(x, y), I(13))));
  EXPECT_FALSE(analyzer.Proves(Lt(Add(x, y), I(12))));
}

TEST_F(SimplifyTest, AffineFormKeepsTheOrderOfTerms) {
  const Affine a = ToAffine(Add(Times(y, 3), Sub(Add(x, I(4)), y)));
  EXPECT_EQ(a.constant, 4);
  ASSERT_EQ(a.terms.size(), 2u);
  EXPECT_EQ(a.terms[0].first, y);
  EXPECT_EQ(a.CoefficientOf(y.get()), 2);
  EXPECT_EQ(a.CoefficientOf(z.get()), 0);
  EXPECT_EQ(ToString(FromAffine(a)), "y * 2 + x + 4");
}

// Random expressions of a few variables with random ranges.
class Generator {
 public:
  Generator(uint32_t seed, Analyzer& analyzer) : random_(seed) {
    for (int i = 0; i < 4; ++i) {
      vars.push_back(MakeVar(std::string(1, static_cast<char>('a' + i))));
      const int64_t min = Below(4) == 0 ? Below(20) - 10 : 0;
      ranges.push_back({min, min + Below(3) * Below(7) + Below(3)});
      if (i < 3 || Below(2) == 0) analyzer.Bind(vars[i], ranges[i]);  // of some nothing is known
    }
  }

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  Expr Int(int depth) {
    if (depth == 0) return Below(4) == 0 ? IntImm(Below(30) - 10) : vars[Below(4)];
    static constexpr int64_t kDivisors[] = {1, 2, 3, 4, 6, 7, 8, 12, 16, 48};
    const int64_t d = kDivisors[Below(10)];
    switch (Below(12)) {
      case 0:
      case 1:
      case 2: return Add(Int(depth - 1), Int(depth - 1));
      case 3: return Sub(Int(depth - 1), Int(depth - 1));
      case 4:
      case 5: return Mul(Int(depth - 1), IntImm(Below(3) == 0 ? Below(9) - 4 : d));
      case 6:
      case 7: return FloorDiv(Int(depth - 1), d);
      case 8:
      case 9: return FloorMod(Int(depth - 1), d);
      case 10: return Below(2) == 0 ? Min(Int(depth - 1), Int(depth - 1)) : Max(Int(depth - 1), Int(depth - 1));
      default: return Select(Condition(depth - 1), Int(depth - 1), Int(depth - 1));
    }
  }

  Expr Condition(int depth) {
    switch (depth == 0 ? Below(4) : Below(7)) {
      case 0: return Lt(Int(depth), Int(depth));
      case 1: return Le(Int(depth), Int(depth));
      case 2: return Eq(Int(depth), Int(depth));
      case 3: return Ne(Int(depth), Int(depth));
      case 4: return And(Condition(depth - 1), Condition(depth - 1));
      case 5: return Or(Condition(depth - 1), Condition(depth - 1));
      default: return Not(Condition(depth - 1));
    }
  }

  Point RandomPoint() {
    Point point;
    for (size_t i = 0; i < vars.size(); ++i)
      point[vars[i].get()] = ranges[i].min + Below(ranges[i].max - ranges[i].min + 1);
    return point;
  }

  std::vector<Expr> vars;
  std::vector<Interval> ranges;

 private:
  std::mt19937_64 random_;
};

TEST(SimplifyProperty, KeepsTheValueOfRandomExpressions) {
  for (uint32_t seed = 0; seed < 20000; ++seed) {
    Analyzer analyzer;
    Generator generator(seed, analyzer);
    const int depth = 1 + static_cast<int>(seed % 5);
    const Expr e = seed % 3 == 0 ? generator.Condition(depth) : generator.Int(depth);
    const Expr simple = analyzer.Simplify(e);
    const Expr twice = analyzer.Simplify(simple);
    const auto bounds = analyzer.Bounds(e);
    const int64_t divisor = analyzer.KnownDivisor(e);
    for (int i = 0; i < 40; ++i) {
      const Point point = generator.RandomPoint();
      const int64_t value = Evaluate(e, point);
      ASSERT_EQ(value, Evaluate(simple, point))
          << "seed " << seed << ": " << ToString(e) << "\n -> " << ToString(simple);
      ASSERT_EQ(value, Evaluate(twice, point))
          << "seed " << seed << ": " << ToString(simple) << "\n -> " << ToString(twice);
      ASSERT_TRUE(!bounds || (bounds->min <= value && value <= bounds->max)) << "seed " << seed << ": " << ToString(e);
      ASSERT_TRUE(divisor == 0 ? value == 0 : value % divisor == 0) << "seed " << seed << ": " << ToString(e);
    }
  }
}

// Taking a fused loop apart along a shape and putting it together along the same shape gives the loop back; along a
// coarser shape no division is left but those that are needed.
TEST(SimplifyProperty, DecomposedLoopsAreRecombined) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> shape;
    int64_t total = 1;
    for (int i = 0; i < 4; ++i) shape.push_back(2 + random() % 9), total *= shape.back();
    Analyzer analyzer;
    const Expr f = MakeVar("f");
    analyzer.Bind(f, total);
    Expr sum = IntImm(0);
    int64_t stride = total;
    for (int64_t extent : shape) {
      stride /= extent;
      sum = Add(sum, Mul(FloorMod(FloorDiv(f, stride), extent), IntImm(stride)));
    }
    EXPECT_EQ(ToString(analyzer.Simplify(sum)), "f") << ToString(sum);
  }
}

TEST(SimplifyCost, DeepTreesTakePolynomialTime) {
  Analyzer analyzer;
  std::vector<Expr> vars;
  for (int i = 0; i < 6; ++i) {
    vars.push_back(MakeVar("v" + std::to_string(i)));
    analyzer.Bind(vars.back(), 5 + i);
  }
  Expr e = vars[0];
  for (int i = 0; i < 60; ++i) {
    e = Add(Mul(FloorDiv(Add(Mul(e, IntImm(3)), vars[i % 6]), 2 + i % 3), IntImm(5)),
            FloorMod(Add(e, vars[(i + 1) % 6]), 7 + i % 5));  // e twice: a chain of shared nodes, 2^60 as a tree
  }
  const auto start = std::chrono::steady_clock::now();
  analyzer.Simplify(e);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(SimplifyCost, HugeNumbersAreHarmless) {
  Analyzer analyzer;
  const Expr x = MakeVar("x");
  analyzer.Bind(x, Interval{INT64_MIN, INT64_MAX});
  const Expr huge = Mul(Add(x, IntImm(INT64_MAX)), IntImm(INT64_MIN));
  analyzer.Simplify(FloorDiv(Add(FloorMod(huge, INT64_MAX), huge), 1 << 30));
  analyzer.Simplify(And(Lt(huge, x), Eq(Sub(x, huge), IntImm(INT64_MIN))));
  EXPECT_FALSE(analyzer.Bounds(huge).has_value());
}

}  // namespace
}  // namespace diapason
