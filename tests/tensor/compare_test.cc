#include "compiler/tensor/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <set>

namespace diapason {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

ComputeDag Matmul(int64_t m, int64_t n, int64_t k, DType dtype = DType::kFloat32) {
  DagBuilder b;
  int x = b.Placeholder("x", {m, k}, dtype);
  int w = b.Constant("w", {k, n}, dtype);
  int c = b.Reduce("c", {m, n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  return b.Build({c}).value();
}

// One row of sums with a function of each.
ComputeDag Activated(int64_t n, int64_t k, const std::string& function, DType dtype = DType::kFloat32) {
  DagBuilder b;
  int x = b.Placeholder("x", {k}, dtype);
  int w = b.Constant("w", {n, k}, dtype);
  int c = b.Reduce("c", {n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {r[0]}), b.At(w, {i[0], r[0]}));
  });
  int y = b.Compute("y", {n}, [&](const DagBuilder::Vars& i) { return Call(function, {b.At(c, {i[0]})}); });
  return b.Build({y}).value();
}

double Rounded(double value, DType dtype) {
  if (IsNarrowFloat(dtype)) return NarrowToFloat(dtype, FloatToNarrow(dtype, static_cast<float>(value)));
  return dtype == DType::kFloat32 ? static_cast<float>(value) : value;
}

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}
  double operator()(const InputRange& range, DType dtype) {
    const double magnitude = std::uniform_real_distribution<double>(range.low, range.high)(random_);
    return Rounded(range.both_signs && random_() % 2 == 0 ? -magnitude : magnitude, dtype);
  }
  std::mt19937_64& random() { return random_; }

 private:
  std::mt19937_64 random_;
};

// Elements of a product, each with `k` terms of its own, and their sums in double.
struct Sums {
  int64_t n, k;
  DType dtype;
  ComputeDag dag;
  std::vector<double> terms;  // products of values of the type
  Array reference;
  Tolerance tolerance;

  Sums(int64_t n, int64_t k, DType dtype, uint64_t seed)
      : n(n), k(k), dtype(dtype), dag(Matmul(1, n, k, dtype)), terms(n * k), reference(dtype, {1, n}) {
    Draw draw(seed);
    const InputRange x = RangeOfInput(dag, 0), w = RangeOfInput(dag, 1);
    for (double& term : terms) term = draw(x, dtype) * draw(w, dtype);
    for (int64_t i = 0; i < n; ++i)
      reference.set(i, std::accumulate(terms.begin() + i * k, terms.begin() + (i + 1) * k, 0.0));
    tolerance = ToleranceOf(dag, 0);
  }
  bool Right(const Array& got) const { return Compare(got, reference, tolerance).ok; }
  // All elements by a way of adding terms; each result is rounded to the type.
  Array By(const std::function<float(const double* terms)>& add) const {
    Array got(dtype, {1, n});
    for (int64_t i = 0; i < n; ++i) got.set(i, add(terms.data() + i * k));
    return got;
  }
  // With one element changed by so much, exactly.
  bool RightWithout(int64_t element, double change) const {
    Array got = reference;
    const double exact = std::accumulate(terms.begin() + element * k, terms.begin() + (element + 1) * k, 0.0);
    got.set(element, exact + change);
    return Right(got);
  }
};

const std::vector<int64_t> kLengths = {2, 3, 9, 64, 576, 2000, 4608, 20000, 100000};

int64_t ElementsFor(int64_t k) { return std::clamp<int64_t>(200000 / k, 16, 1000); }

class CompareTypes : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, CompareTypes, testing::Values(DType::kFloat32, DType::kFloat16, DType::kBfloat16),
                         [](const auto& info) { return NameOf(info.param); });

// The 13 bits that TensorFloat-32 does not have, rounded.
float InTf32(double value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(static_cast<float>(value)) + 0x1000u) & 0xffffe000u);
}

TEST(CompareTest, FactorsInTensorFloatAreRightWhereTheTargetAllowsThem) {
  constexpr double kAnyError = std::numeric_limits<double>::infinity();
  for (const int64_t k : kLengths) {
    if (k > 20000) continue;  // sums of float32 may be as far off
    const ComputeDag dag = Matmul(1, ElementsFor(k), k);
    Array exact(DType::kFloat32, {1, ElementsFor(k)}), rounded = exact;
    Draw draw(k);
    for (int64_t i = 0; i < exact.elements(); ++i) {
      double sum = 0, sum_of_rounded = 0;
      for (int64_t r = 0; r < k; ++r) {
        const double x = draw(RangeOfInput(dag, 0), DType::kFloat32), w = draw(RangeOfInput(dag, 1), DType::kFloat32);
        sum += x * w;
        sum_of_rounded += static_cast<double>(InTf32(x)) * InTf32(w);
      }
      exact.set(i, sum);
      rounded.set(i, sum_of_rounded);
    }
    const Comparison allowed = Compare(rounded, exact, ToleranceOf(dag, 0, {}, kAnyError));
    EXPECT_TRUE(allowed.ok) << k << " terms: " << allowed.max_rel_error << " of " << allowed.tolerance;
    EXPECT_FALSE(Compare(rounded, exact, ToleranceOf(dag, 0)).ok) << k << " terms";
    const double error = allowed.max_rel_error;
    EXPECT_TRUE(Compare(rounded, exact, ToleranceOf(dag, 0, {}, error * 1.01)).ok) << k << " terms";
    EXPECT_FALSE(Compare(rounded, exact, ToleranceOf(dag, 0, {}, error * 0.99)).ok) << k << " terms";
    // A term that is missing shows all the same.
    Array missing = exact;
    const InputRange range = RangeOfInput(dag, 0);
    missing.set(0, exact.at(0) + range.low * range.low * (exact.at(0) < 0 ? 1 : -1));
    EXPECT_FALSE(Compare(missing, exact, ToleranceOf(dag, 0, {}, kAnyError)).ok) << k << " terms";
  }
}

TEST_P(CompareTypes, SumsInAnyOrderAreRight) {
  for (const int64_t k : kLengths) {
    const Sums sums(ElementsFor(k), k, GetParam(), k);
    const auto add = [&](int64_t lanes, bool backwards) {
      return sums.By([&](const double* terms) {
        std::vector<float> partial(lanes);
        for (int64_t i = 0; i < k; ++i) {
          const int64_t at = backwards ? k - 1 - i : i;
          partial[at % lanes] += static_cast<float>(terms[at]);
        }
        float sum = 0;
        for (const float part : partial) sum += part;
        return sum;
      });
    };
    for (const int64_t lanes : {1, 8, 32}) {
      EXPECT_TRUE(sums.Right(add(lanes, false))) << k << " terms, " << lanes << " lanes";
      EXPECT_TRUE(sums.Right(add(lanes, true))) << k << " terms backwards, " << lanes << " lanes";
    }
  }
}

// 3xTF32: high parts of 11 bits, their product and two mixed ones; the accumulator takes 8 products at a time and cuts
// off.
TEST(CompareTest, ProductsOfThreePartsOnTensorCoresAreRight) {
  for (const int64_t k : kLengths) {
    const Sums sums(ElementsFor(k), k, DType::kFloat32, k + 1);
    std::mt19937_64 random(k);
    const Array got = sums.By([&](const double* terms) {
      float sum = 0;
      for (int64_t begin = 0; begin < k; begin += 8) {
        double chunk = sum;
        // What the three products drop is at most the product of two low parts.
        for (int64_t i = begin; i < std::min(k, begin + 8); ++i)
          chunk += terms[i] * (1 + std::uniform_real_distribution<double>(-0x1p-22, 0x1p-22)(random));
        sum = static_cast<float>(chunk);
        if (std::fabs(static_cast<double>(sum)) > std::fabs(chunk)) sum = std::nextafter(sum, 0.0f);
      }
      return sum;
    });
    EXPECT_TRUE(sums.Right(got)) << k << " terms";
  }
}

// What a missing or a doubled term changes: up to 20,000 terms of float32, 2,000 of float16 and some hundreds of
// bfloat16 always more than allowed.
TEST_P(CompareTypes, OneWrongTermIsFound) {
  const bool bfloat16 = GetParam() == DType::kBfloat16;
  const int64_t always = GetParam() == DType::kFloat32 ? 20000 : bfloat16 ? 500 : 2000;
  for (const int64_t k : kLengths) {
    if (bfloat16 && k > 2000) continue;  // what one term changes is rounded away
    const Sums sums(ElementsFor(k), k, GetParam(), k + 2);
    Draw draw(k);
    int tried = 0, missed = 0;
    for (int64_t element = 0; element < std::min<int64_t>(sums.n, 200); ++element) {
      const double term = sums.terms[element * k + static_cast<int64_t>(draw.random()() % k)];
      tried += 2;
      missed += sums.RightWithout(element, -term) + sums.RightWithout(element, term);
    }
    ASSERT_GE(tried, 32);
    if (k <= always) {
      EXPECT_EQ(missed, 0) << k << " terms, of " << tried;
    } else {
      EXPECT_LE(missed, GetParam() == DType::kFloat32 ? tried / 20 : tried / 2) << k << " terms, of " << tried;
    }
  }
}

// The fault is in every sum, as of a loop that ends too early: found for any length that the
// type of the result shows.
TEST_P(CompareTypes, ATermThatIsMissingEverywhereIsFound) {
  for (const int64_t k : kLengths) {
    if (GetParam() == DType::kBfloat16 && k > 20000) continue;  // the largest are rounded by more than a term
    const Sums sums(ElementsFor(k), k, GetParam(), k + 3);
    EXPECT_FALSE(sums.Right(sums.By([&](const double* terms) {
      return static_cast<float>(std::accumulate(terms, terms + k - 1, 0.0));
    }))) << k
         << " terms";
  }
}

TEST_P(CompareTypes, SwappedAndStrangeElementsAreFound) {
  for (const int64_t k : kLengths) {
    const Sums sums(ElementsFor(k), k, GetParam(), k + 4);
    Array swapped = sums.reference;
    swapped.set(0, sums.reference.at(1));
    swapped.set(1, sums.reference.at(0));
    EXPECT_FALSE(sums.Right(swapped)) << k << " terms";
    // A border element that read what lies beside: as many terms of which a third are others.
    Array border = sums.reference;
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += sums.terms[i + (i % 3 == 0 ? k : 0)];
    border.set(0, sum);
    EXPECT_FALSE(sums.Right(border)) << k << " terms";
  }
}

// TF32 without its low parts is not float32.
TEST(CompareTest, ProductsOfHighPartsAloneAreFound) {
  for (const int64_t k : {9, 576, 4608}) {
    const Sums sums(400, k, DType::kFloat32, k);
    std::mt19937_64 random(k);
    EXPECT_FALSE(sums.Right(sums.By([&](const double* terms) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += terms[i] * (1 + std::uniform_real_distribution<double>(-0x1p-12, 0x1p-12)(random));
      return static_cast<float>(sum);
    }))) << k
         << " terms";
  }
}

using Grid = std::vector<std::vector<float>>;

Grid Times(const Grid& a, const Grid& b) {
  Grid c(a.size(), std::vector<float>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b[0].size(); ++j)
      for (size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Grid Transposed(const Grid& a) {
  Grid t(a[0].size(), std::vector<float>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}

ComputeDag Convolution(int64_t tiles, int64_t channels) {
  DagBuilder b;
  int x = b.Placeholder("x", {tiles, 6, 6, channels});
  int w = b.Constant("w", {3, 3, channels, tiles});
  int c = b.Reduce("c", {tiles, 4, 4}, {3, 3, channels}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], Add(i[1], r[0]), Add(i[2], r[1]), r[2]}), b.At(w, {r[0], r[1], r[2], i[0]}));
  });
  return b.Build({c}).value();
}

// F(4x4, 3x3) in float32 throughout, with the usual points 0, 1, -1, 2, -2.
TEST(CompareTest, WinogradsAlgorithmIsRight) {
  const Grid bt = {{4, 0, -5, 0, 1, 0},  {0, -4, -4, 1, 1, 0}, {0, 4, -4, -1, 1, 0},
                   {0, -2, -1, 2, 1, 0}, {0, 2, -1, -2, 1, 0}, {0, 4, 0, -5, 0, 1}};
  const Grid g = {{0.25f, 0, 0},
                  {-1.0f / 6, -1.0f / 6, -1.0f / 6},
                  {-1.0f / 6, 1.0f / 6, -1.0f / 6},
                  {1.0f / 24, 1.0f / 12, 1.0f / 6},
                  {1.0f / 24, -1.0f / 12, 1.0f / 6},
                  {0, 0, 1}};
  const Grid at = {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}};
  for (const int64_t channels : {1, 8, 64, 512, 2048}) {
    const int64_t tiles = std::clamp<int64_t>(20000 / channels, 10, 200);
    const ComputeDag dag = Convolution(tiles, channels);
    Draw draw(channels);
    Array got(DType::kFloat32, {tiles, 4, 4}), reference = got;
    for (int64_t t = 0; t < tiles; ++t) {
      Grid sums(6, std::vector<float>(6));
      std::vector<double> exact(16);
      for (int64_t c = 0; c < channels; ++c) {
        Grid x(6, std::vector<float>(6)), w(3, std::vector<float>(3));
        for (auto* grid : {&x, &w})
          for (auto& row : *grid)
            for (float& value : row) value = static_cast<float>(draw(InputRange{}, DType::kFloat32));
        const Grid u = Times(Times(g, w), Transposed(g)), v = Times(Times(bt, x), Transposed(bt));
        for (int i = 0; i < 36; ++i) sums[i / 6][i % 6] += u[i / 6][i % 6] * v[i / 6][i % 6];
        for (int i = 0; i < 16 * 9; ++i)
          exact[i / 9] += static_cast<double>(x[i / 36 + i % 9 / 3][i / 9 % 4 + i % 3]) * w[i % 9 / 3][i % 3];
      }
      const Grid y = Times(Times(at, sums), Transposed(at));
      for (int i = 0; i < 16; ++i) {
        got.set(t * 16 + i, y[i / 4][i % 4]);
        reference.set(t * 16 + i, exact[i]);
      }
    }
    const Comparison result = Compare(got, reference, ToleranceOf(dag, 0));
    EXPECT_LT(result.max_rel_error, result.tolerance / 2) << channels << " channels";
    // What is allowed for it still does not hide one missing term of the smallest kind.
    got.set(7, reference.at(7) + 0.25);
    EXPECT_FALSE(Compare(got, reference, ToleranceOf(dag, 0)).ok) << channels << " channels";
  }
}

Grid Block(const Grid& a, size_t row, size_t column, size_t rows, size_t columns) {
  Grid block(rows);
  for (size_t i = 0; i < rows; ++i) block[i].assign(a[row + i].begin() + column, a[row + i].begin() + column + columns);
  return block;
}

Grid Sum(const Grid& a, const Grid& b, float sign) {
  Grid c = a;
  for (size_t i = 0; i < c.size(); ++i)
    for (size_t j = 0; j < c[i].size(); ++j) c[i][j] += sign * b[i][j];
  return c;
}

// Strassen's seven products (1969), in float32 throughout.
Grid Strassen(const Grid& a, const Grid& b, int levels) {
  if (levels == 0) return Times(a, b);
  const size_t m = a.size() / 2, k = b.size() / 2, n = b[0].size() / 2;
  const auto of_a = [&](int i, int j) { return Block(a, i * m, j * k, m, k); };
  const auto of_b = [&](int i, int j) { return Block(b, i * k, j * n, k, n); };
  const auto product = [&](const Grid& x, const Grid& y) { return Strassen(x, y, levels - 1); };
  const Grid p1 = product(Sum(of_a(0, 0), of_a(1, 1), 1), Sum(of_b(0, 0), of_b(1, 1), 1));
  const Grid p2 = product(Sum(of_a(1, 0), of_a(1, 1), 1), of_b(0, 0)),
             p3 = product(of_a(0, 0), Sum(of_b(0, 1), of_b(1, 1), -1));
  const Grid p4 = product(of_a(1, 1), Sum(of_b(1, 0), of_b(0, 0), -1)),
             p5 = product(Sum(of_a(0, 0), of_a(0, 1), 1), of_b(1, 1));
  const Grid p6 = product(Sum(of_a(1, 0), of_a(0, 0), -1), Sum(of_b(0, 0), of_b(0, 1), 1));
  const Grid p7 = product(Sum(of_a(0, 1), of_a(1, 1), -1), Sum(of_b(1, 0), of_b(1, 1), 1));
  const Grid parts[2][2] = {{Sum(Sum(Sum(p1, p4, 1), p5, -1), p7, 1), Sum(p3, p5, 1)},
                            {Sum(p2, p4, 1), Sum(Sum(Sum(p1, p2, -1), p3, 1), p6, 1)}};
  Grid c(2 * m, std::vector<float>(2 * n));
  for (size_t i = 0; i < 2 * m; ++i)
    for (size_t j = 0; j < 2 * n; ++j) c[i][j] = parts[i / m][j / n][i % m][j % n];
  return c;
}

TEST(CompareTest, StrassensAlgorithmIsRight) {
  for (const int64_t k : {16, 64, 1024, 20000, 100000}) {
    const int64_t m = 8, n = 8;
    const ComputeDag dag = Matmul(m, n, k);
    Draw draw(k);
    Grid a(m, std::vector<float>(k)), b(k, std::vector<float>(n));
    for (auto* grid : {&a, &b})
      for (auto& row : *grid)
        for (float& value : row) value = static_cast<float>(draw(InputRange{}, DType::kFloat32));
    const Grid product = Strassen(a, b, 2);
    Array got(DType::kFloat32, {m, n}), reference = got;
    for (int64_t i = 0; i < m * n; ++i) {
      double exact = 0;
      for (int64_t r = 0; r < k; ++r) exact += static_cast<double>(a[i / n][r]) * b[r][i % n];
      reference.set(i, exact);
      got.set(i, product[i / n][i % n]);
    }
    const Comparison result = Compare(got, reference, ToleranceOf(dag, 0));
    EXPECT_LT(result.max_rel_error, result.tolerance / 2) << k << " terms";
  }
}

// A missing term of a sum behind a function that saturates shows, since second factors are small where the dag has such
// a function.
TEST_P(CompareTypes, AMissingTermShowsBehindFunctions) {
  for (const std::string function : {"sigmoid", "tanh", "erf"}) {
    for (const int64_t k : {9, 576, 2000}) {
      const int64_t n = 100;
      const ComputeDag dag = Activated(n, k, function, GetParam());
      Draw draw(k);
      const InputRange x = RangeOfInput(dag, 0), w = RangeOfInput(dag, 1);
      Array right(GetParam(), {n}), wrong(GetParam(), {n});
      const auto apply = [&](double s) {
        return function == "sigmoid" ? 1 / (1 + std::exp(-s)) : function == "tanh" ? std::tanh(s) : std::erf(s);
      };
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0, last = 0;
        for (int64_t r = 0; r < k; ++r) sum += last = draw(x, GetParam()) * draw(w, GetParam());
        right.set(i, apply(Rounded(sum, GetParam())));
        wrong.set(i, apply(Rounded(sum - last, GetParam())));
      }
      EXPECT_TRUE(Compare(right, right, ToleranceOf(dag, 0)).ok);
      EXPECT_FALSE(Compare(wrong, right, ToleranceOf(dag, 0)).ok) << function << " of " << k << " terms";
    }
  }
}

TEST(CompareTest, NonFiniteElementsMustMatch) {
  const Array reference = Array::FromFloats({3}, {1, NAN, INFINITY});
  const Tolerance tolerance{1e-3, 1};
  EXPECT_TRUE(Compare(reference, reference, tolerance).ok);
  for (const std::vector<float>& wrong : std::vector<std::vector<float>>{
           {NAN, NAN, INFINITY}, {1, 1, INFINITY}, {1, NAN, -INFINITY}, {INFINITY, NAN, INFINITY}, {1, NAN, 3e38f}}) {
    const Comparison result = Compare(Array::FromFloats({3}, wrong), reference, tolerance);
    EXPECT_FALSE(result.ok);
    EXPECT_EQ(result.max_abs_error, kInf);
  }
}

TEST(CompareTest, IntegersMustBeEqual) {
  Array a(DType::kInt64, {2}), b(DType::kInt64, {2});
  a.set_int(0, (int64_t{1} << 60) + 1);
  b.set_int(0, int64_t{1} << 60);
  EXPECT_FALSE(Compare(a, b, {}).ok);
  EXPECT_TRUE(Compare(a, a, {}).ok);
}

// An output of zeros, as behind a ReLU of negative numbers, is as exact as the numbers were.
// Sums of k products of bytes for each of n columns, with a bias, scaled and rounded to uint8; `back`: and as floats
// again.
ComputeDag Requantised(int64_t n, int64_t k, bool back = false) {
  DagBuilder b;
  const int x = b.Placeholder("x", {k}, DType::kUint8), w = b.Constant("w", {k, n}, DType::kInt8);
  const int bias = b.Constant("bias", {n}, DType::kInt32), scale = b.Constant("scale", {n});
  const int sum = b.Reduce("sum", {n}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(Cast(DType::kInt32, b.At(x, {r[0]})), Cast(DType::kInt32, b.At(w, {r[0], i[0]})));
  });
  int y = b.Compute("y", {n}, [&](const DagBuilder::Vars& i) {
    const Expr whole = Add(b.At(sum, {i[0]}), b.At(bias, {i[0]}));
    const Expr rounded = Call("round", {Mul(Cast(DType::kFloat32, whole), b.At(scale, {i[0]}))});
    return Cast(DType::kUint8, Min(Max(Add(rounded, FloatImm(100)), FloatImm(0)), FloatImm(255)));
  });
  if (back) {
    y = b.Compute("z", {n}, [&](const DagBuilder::Vars& i) {
      return Mul(Cast(DType::kFloat32, Sub(Cast(DType::kInt32, b.At(y, {i[0]})), IntImm(100, DType::kInt32))),
                 FloatImm(0.02));
    });
  }
  return b.Build({y}).value();
}

// What the dag above makes of drawn inputs; `bend` changes what is rounded.
Array Requantise(const ComputeDag& dag, uint64_t seed, const std::function<float(float)>& bend) {
  std::mt19937_64 random(seed);
  const int64_t k = dag.stage(0).shape()[0], n = dag.stage(1).shape()[1];
  const auto integer = [&](int stage) {
    const IntegerRange range = DrawnIntegers(dag, stage);
    return std::uniform_int_distribution<int64_t>(range.low, range.high)(random);
  };
  std::vector<int64_t> x(k);
  for (int64_t& value : x) value = integer(0);
  const InputRange scales = RangeOfInput(dag, 3);
  Draw draw(seed + 1);
  Array result(DType::kUint8, {n});
  for (int64_t j = 0; j < n; ++j) {
    int64_t sum = integer(2);
    for (const int64_t value : x) sum += value * integer(1);
    const float scaled = bend(static_cast<float>(sum) * static_cast<float>(draw(scales, DType::kFloat32)));
    result.set_int(j, static_cast<int64_t>(std::clamp(std::nearbyint(scaled) + 100.0f, 0.0f, 255.0f)));
  }
  return result;
}

// int16 and uint16 are int32 wrapped to 16 bits: what was rounded before it was wrapped may be off by a step.
TEST(ToleranceTest, WrappedIntegersMayBeOffByAStep) {
  for (const int64_t half : {int64_t{32768}, int64_t{0}}) {
    DagBuilder b;
    const int x = b.Placeholder("x", {1000}), scale = b.Constant("scale", {});
    const int steps = b.Compute("steps", {1000}, [&](const DagBuilder::Vars& i) {
      return Cast(DType::kInt32, Call("round", {Div(b.At(x, {i[0]}), b.At(scale, {}))}));
    });
    const int wrapped = b.Compute("wrapped", {1000}, [&](const DagBuilder::Vars& i) {
      const Expr step = Cast(DType::kInt64, b.At(steps, {i[0]}));
      if (half == 0) return Cast(DType::kInt32, FloorMod(step, 65536));
      return Cast(DType::kInt32, Sub(FloorMod(Add(step, Cast(DType::kInt64, IntImm(half))), 2 * half), IntImm(half)));
    });
    const int y = b.Compute("y", {1000}, [&](const DagBuilder::Vars& i) {
      return Mul(Cast(DType::kFloat32, b.At(wrapped, {i[0]})), b.At(scale, {}));
    });
    const ComputeDag dag = b.Build({y}).value();
    const Tolerance tolerance = ToleranceOf(dag, 0);
    EXPECT_GT(tolerance.jump, 0) << half;
    EXPECT_GT(tolerance.share, 0) << half;
    EXPECT_LT(tolerance.share, 0.01) << half;
  }
}

TEST(CompareTest, InputsSpreadWhatIsRoundedOverAllBytes) {
  for (const int64_t k : {9, 576, 4608}) {
    const Array y = Requantise(Requantised(4000, k), 1, [](float v) { return v; });
    int64_t inside = 0;
    std::set<int64_t> values;
    for (int64_t i = 0; i < y.elements(); ++i) {
      inside += y.int_at(i) > 0 && y.int_at(i) < 255;
      values.insert(y.int_at(i));
    }
    EXPECT_GT(inside, 2800) << k;
    EXPECT_GT(values.size(), 200u) << k;
  }
}

TEST(CompareTest, AFewRoundedElementsMayBeOneStepOff) {
  const ComputeDag dag = Requantised(200000, 64);
  const Tolerance tolerance = ToleranceOf(dag, 0);
  EXPECT_EQ(tolerance.relative, 0);
  EXPECT_EQ(tolerance.jump, 1);
  EXPECT_GT(tolerance.share, 0);
  EXPECT_LT(tolerance.share, 1e-3);
  // Two roundings more, as of a factor that is multiplied in another order.
  const Array reference = Requantise(dag, 1, [](float v) { return v; });
  const Array close = Requantise(dag, 1, [](float v) { return v * (1 + 0x1p-22f); });
  const Comparison comparison = Compare(close, reference, tolerance);
  EXPECT_GT(comparison.jumps, 0);
  EXPECT_LE(comparison.jumps, ElementsOf(tolerance.share, reference.elements()));
  EXPECT_TRUE(comparison.ok);
  EXPECT_EQ(comparison.max_abs_error, 1);
  // Without a tolerance they must be equal, as integers of exact sums must.
  EXPECT_FALSE(Compare(close, reference, {}).ok);
}

TEST(CompareTest, MoreStepsAndMoreElementsAreFound) {
  const ComputeDag dag = Requantised(20000, 64);
  const Tolerance tolerance = ToleranceOf(dag, 0);
  const Array reference = Requantise(dag, 1, [](float v) { return v; });
  Array one = reference;
  one.set_int(7, one.int_at(7) < 100 ? one.int_at(7) + 2 : one.int_at(7) - 2);
  EXPECT_FALSE(Compare(one, reference, tolerance).ok);
  EXPECT_EQ(Compare(one, reference, tolerance).worst, 7);
  // A bias that is left out, a scale that is a part in a thousand off, rounding down.
  EXPECT_FALSE(Compare(Requantise(dag, 1, [](float v) { return v + 0.05f; }), reference, tolerance).ok);
  EXPECT_FALSE(Compare(Requantise(dag, 1, [](float v) { return v * 1.001f; }), reference, tolerance).ok);
  EXPECT_FALSE(Compare(Requantise(dag, 1, [](float v) { return std::floor(v); }), reference, tolerance).ok);
}

TEST(CompareTest, FloatsOfRoundedNumbersMayJumpAStep) {
  const ComputeDag dag = Requantised(1000, 64, /*back=*/true);
  const Tolerance tolerance = ToleranceOf(dag, 0);
  EXPECT_NEAR(tolerance.jump, 0.02, 1e-6);
  EXPECT_LT(tolerance.relative, 1e-5);
  Array reference(DType::kFloat32, {1000}), got(DType::kFloat32, {1000});
  for (int64_t i = 0; i < 1000; ++i) reference.set(i, 0.02 * static_cast<double>(i % 200 - 100));
  got = reference;
  got.set(5, got.at(5) + 0.02);
  EXPECT_TRUE(Compare(got, reference, tolerance).ok);
  got.set(5, got.at(5) + 0.02);
  EXPECT_FALSE(Compare(got, reference, tolerance).ok);
  for (int64_t i = 0; i < 100; ++i) got.set(i, reference.at(i) + 0.02);
  EXPECT_FALSE(Compare(got, reference, tolerance).ok);
}

// What a requantised sum of a network becomes, if many of its elements may be a step off, is allowed that step.
TEST(CompareTest, AScaledStepOfManyElementsIsAllowedAsItIsRounded) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1000}, DType::kFloat32);
  const int scaled = b.Compute("scaled", {1000}, [&](auto& i) {
    const Expr whole = Min(Max(Call("round", {b.At(x, {i[0]})}), FloatImm(-128)), FloatImm(127));
    return Mul(Cast(DType::kFloat32, Cast(DType::kInt8, whole)), FloatImm(0.0303017));
  });
  const ComputeDag dag = b.Build({scaled}).value();
  const Tolerance tolerance = ToleranceOf(dag, 0, {{0, {64, 0.2}}});
  EXPECT_EQ(tolerance.share, 0);
  Array reference(DType::kFloat32, {1000}), got = reference;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t step = i % 256 - 128;
    reference.set(i, static_cast<float>(step) * 0.0303017f);
    got.set(i, static_cast<float>(step + (i % 3 == 0 ? 1 : 0)) * 0.0303017f);
  }
  EXPECT_TRUE(Compare(got, reference, tolerance).ok);
  for (int64_t i = 0; i < 1000; ++i) got.set(i, reference.at(i) + 1.5 * 0.0303017);
  EXPECT_FALSE(Compare(got, reference, tolerance).ok);
}

TEST(CompareTest, JumpsOfInputsPassThroughSums) {
  DagBuilder b;
  const int x = b.Placeholder("x", {64}, DType::kUint8), w = b.Constant("w", {64, 8}, DType::kInt8);
  const int sum = b.Reduce("sum", {8}, {64}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(Cast(DType::kInt32, b.At(x, {r[0]})), Cast(DType::kInt32, b.At(w, {r[0], i[0]})));
  });
  const ComputeDag dag = b.Build({sum}).value();
  EXPECT_EQ(ToleranceOf(dag, 0).jump, 0);
  const Tolerance few = ToleranceOf(dag, 0, {{0, {150, 0, 1, 1e-6}}});
  EXPECT_EQ(few.relative, 0);
  EXPECT_GT(few.jump, 70);  // a weight
  EXPECT_NEAR(few.share, 64e-6, 1e-9);
  // Of many elements they are an error of all.
  const Tolerance many = ToleranceOf(dag, 0, {{0, {150, 0, 1, 0.02}}});
  EXPECT_GT(many.relative, 0);
  EXPECT_EQ(many.share, 0);
}

TEST(CompareTest, ZerosAreComparedByTheModelsMagnitude) {
  const Array zeros = Array::FromFloats({2}, {0, 0});
  EXPECT_TRUE(Compare(Array::FromFloats({2}, {0, 0.9e-3f}), zeros, {1e-4, 10}).ok);
  EXPECT_FALSE(Compare(Array::FromFloats({2}, {0, 1.1e-3f}), zeros, {1e-4, 10}).ok);
}

// Whatever block it is in, and whichever came before.
TEST(CompareTest, TheWorstElementIsFoundAmongMany) {
  const int64_t n = 100001;
  Array reference(DType::kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) reference.set(i, i % 2 == 0 ? 1 : -1);
  for (const int64_t at : {int64_t{0}, int64_t{4095}, int64_t{4096}, n - 1}) {
    Array got = reference;
    got.set(50000, 1.0001);
    got.set(at, reference.at(at) + 0.01);
    const Comparison result = Compare(got, reference, {1e-3, 1});
    EXPECT_FALSE(result.ok);
    EXPECT_EQ(result.worst, at);
    EXPECT_NEAR(result.max_rel_error, 0.01, 1e-5);
    EXPECT_NEAR(result.allowed, 1e-3, 1e-5);
  }
}

// In float32; the same of what is scaled, of products, and beyond 2^24 is not.
TEST(CompareTest, SumsOfBytesAreExact) {
  const auto relative = [](int64_t terms, double scale, bool products) {
    DagBuilder b;
    const int x = b.Placeholder("x", {8, terms}, DType::kUint8);
    const int sum = b.Reduce("sum", {8}, {terms}, Combiner::kSum, [&](const auto& i, const auto& r) {
      const Expr byte = Cast(DType::kFloat32, b.At(x, {i[0], r[0]}));
      return products ? Mul(byte, byte) : scale == 1 ? byte : Mul(byte, FloatImm(scale));
    });
    return ToleranceOf(b.Build({sum}).value(), 0).relative;
  };
  EXPECT_EQ(relative(49, 1, false), 0);
  EXPECT_GT(relative(49, 0.02, false), 1e-8);
  EXPECT_GT(relative(49, 1, true), 1e-8);
  EXPECT_GT(relative(1 << 20, 1, false), 1e-8);
}

// A result that is limited to numbers far from its own has the tolerance of one that is not, and one that is cut off
// everywhere is as large as the limit.
TEST(CompareTest, LimitsAreNotTakenForMagnitudes) {
  const auto tolerance = [](double magnitude, const std::function<Expr(Expr)>& limited) {
    DagBuilder b;
    const int x = b.Placeholder("x", {4, 800}), w = b.Constant("w", {800, 4});
    const int sum = b.Reduce("sum", {4, 4}, {800}, Combiner::kSum, [&](const auto& i, const auto& r) {
      return Mul(b.At(x, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
    });
    const int y = b.Compute("y", {4, 4}, [&](const auto& i) { return limited(b.At(sum, {i[0], i[1]})); });
    return ToleranceOf(b.Build({y}).value(), 0, {{x, {magnitude, 0}}, {w, {1, 0}}});
  };
  const auto clip = [](double low, double high) {
    return [=](const Expr& x) { return Min(Max(x, FloatImm(low)), FloatImm(high)); };
  };
  const auto other_way = [](double low, double high) {
    return [=](const Expr& x) { return Max(FloatImm(low), Min(FloatImm(high), x)); };
  };
  const Tolerance free = tolerance(0.001, [](const Expr& x) { return x; });
  for (const auto& limited : std::vector<std::function<Expr(Expr)>>{
           clip(0, 6), clip(-100, 100), clip(-1e6, 5), other_way(0, 6), other_way(-100, 100),
           [](const Expr& x) { return Max(x, FloatImm(-50)); }, [](const Expr& x) { return Min(x, FloatImm(50)); }}) {
    EXPECT_NEAR(tolerance(0.001, limited).magnitude, free.magnitude, 1e-9);
    EXPECT_NEAR(tolerance(0.001, limited).relative, free.relative, 0.1 * free.relative);
  }
  EXPECT_NEAR(tolerance(1000, clip(-1, 1)).magnitude, 1, 1e-9);
  EXPECT_NEAR(tolerance(1000, other_way(0, 6)).magnitude, 6, 1e-9);
  // All elements are the limit.
  EXPECT_NEAR(tolerance(0.001, [](const Expr& x) { return Max(x, FloatImm(5)); }).magnitude, 5, 1e-9);
  EXPECT_NEAR(tolerance(0.001, [](const Expr& x) { return Min(x, FloatImm(-5)); }).magnitude, 5, 1e-9);
}

// Errors of a network's tensors pass through its tasks: in quadrature, so that a hundred layers have ten times the
// error of one.
TEST(CompareTest, ErrorsOfInputsAddInQuadrature) {
  const ComputeDag dag = Matmul(4, 4, 64);
  const double one = ToleranceOf(dag, 0).relative;
  double error = 0;
  for (int layer = 0; layer < 100; ++layer) error = ToleranceOf(dag, 0, {{0, {1, error}}, {1, {1, 0}}}).relative;
  EXPECT_NEAR(error, 10 * one, one / 2);
  EXPECT_NEAR(ToleranceOf(dag, 0, {{0, {3, 3e-3}}, {1, {1, 0}}}).relative, 1e-3, 1e-5);
}

TEST(CompareTest, MagnitudesLeaveMasksOut) {
  const auto magnitude = [](const std::vector<float>& values) {
    return MagnitudeOf(Array::FromFloats({static_cast<int64_t>(values.size())}, values));
  };
  EXPECT_DOUBLE_EQ(magnitude({3, -4, 3, -4}), std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(magnitude({3, -4, -10000, NAN, -INFINITY}), std::sqrt(12.5));
  EXPECT_DOUBLE_EQ(magnitude({3, -4, -1e9f, -1e9f - 64, 3.4e38f, -10000}), std::sqrt(12.5));
  EXPECT_EQ(magnitude({0, -1e9f}), 0);
  EXPECT_EQ(magnitude({-3.4e38f}), 0);
  EXPECT_EQ(magnitude({-10000}), 0);
  // Large numbers that are no mask.
  EXPECT_DOUBLE_EQ(magnitude({0, -9000}), 9000 / std::sqrt(2));
  EXPECT_DOUBLE_EQ(magnitude({0, 20000}), 20000 / std::sqrt(2));
  EXPECT_DOUBLE_EQ(magnitude({40, -10000}), std::sqrt((1600 + 1e8) / 2));
  EXPECT_DOUBLE_EQ(magnitude({-20000, -90000}), std::sqrt((4e8 + 81e8) / 2));
}

TEST(CompareTest, MagnitudesOfNarrowFloatsAreThoseOfTheirValues) {
  std::vector<float> values(10000);
  for (int i = 0; i < 10000; ++i) values[i] = static_cast<float>((i * 37 % 1001) - 500) / 64;
  values[17] = 0x1p-20f;  // a subnormal half
  std::vector<float> masked = values;
  for (int i = 0; i < 10000; i += 7) masked[i] = -30000;
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const std::vector<float>& some : {values, masked}) {
      const Array narrow = CastArray(Array::FromFloats({10000}, some), dtype);
      EXPECT_DOUBLE_EQ(MagnitudeOf(narrow), MagnitudeOf(CastArray(narrow, DType::kFloat32))) << NameOf(dtype);
    }
    EXPECT_LT(MagnitudeOf(CastArray(Array::FromFloats({10000}, masked), dtype)), 10) << NameOf(dtype);
  }
}

// Softmax's exponentials of masked scores: they differ from their reference as those of the other scores do.
TEST(CompareTest, AMaskAllowsNoLargerErrors) {
  const auto dag = [](double masked) {
    DagBuilder b;
    int x = b.Placeholder("x", {64});
    int y = b.Compute("y", {64}, [&](const DagBuilder::Vars& i) {
      return Call("exp", {Select(Lt(i[0], IntImm(32)), b.At(x, {i[0]}), FloatImm(masked))});
    });
    return b.Build({y}).value();
  };
  for (const double masked : {-1e4, -1e9, -3.4e38}) {
    EXPECT_EQ(ToleranceOf(dag(masked), 0).relative, ToleranceOf(dag(0), 0).relative) << masked;
    const Array zeros_and_minus = Array::FromFloats({2}, {0, static_cast<float>(masked)});
    EXPECT_EQ(MagnitudeOf(zeros_and_minus), 0);
  }
  EXPECT_LT(ToleranceOf(dag(-1e9), 0).relative, 1e-5);
}

TEST(CompareTest, SavingsAreThoseOfTheAlgorithmsThatApply) {
  EXPECT_EQ(LargestSaving(Convolution(1, 8)), 4);
  EXPECT_EQ(LargestSaving(Matmul(4, 4, 4)), 64.0 / 49);
  DagBuilder b;
  int x = b.Placeholder("x", {4, 4});
  int sum = b.Reduce("sum", {4}, {4}, Combiner::kSum, [&](auto& i, auto& r) { return b.At(x, {i[0], r[0]}); });
  EXPECT_EQ(LargestSaving(b.Build({sum}).value()), 1);
}

}  // namespace
}  // namespace diapason
