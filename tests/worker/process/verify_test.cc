#include "worker/process/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "compiler/tensor/compare.h"
#include "worker/process/candidate.h"

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

Array Floats(std::vector<int64_t> shape, std::vector<float> values) {
  return Array::FromFloats(std::move(shape), values);
}

TEST(VerifyTest, InputsDependOnSeedAndStageOnly) {
  ComputeDag dag = Matmul(4, 4, 4);
  EXPECT_EQ(RandomInput(dag, 0, 7).data, RandomInput(dag, 0, 7).data);
  EXPECT_NE(RandomInput(dag, 0, 7).data, RandomInput(dag, 0, 8).data);
  EXPECT_NE(RandomInput(dag, 0, 7).data, RandomInput(dag, 1, 7).data);
}

TEST(VerifyTest, InputsLieInTheDomainOfTheDag) {
  DagBuilder b;
  int x = b.Placeholder("x", {1000});
  int index = b.Placeholder("index", {1000}, DType::kInt64);
  b.stage(index).valid_min = 3;
  b.stage(index).valid_max = 9;
  int y = b.Compute("y", {1000}, [&](const DagBuilder::Vars& i) { return Call("sqrt", {b.At(x, {i[0]})}); });
  ComputeDag dag = b.Build({y}).value();
  Array values = RandomInput(dag, x, 1), indices = RandomInput(dag, index, 1);
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(values.at(i), 0.5);
    EXPECT_LT(values.at(i), 1);
    EXPECT_GE(indices.int_at(i), 3);
    EXPECT_LE(indices.int_at(i), 9);
  }
}

TEST(VerifyTest, IntegersWithoutARangeTakeValuesThatTellKernelsApart) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4000}, DType::kInt8), w = b.Constant("w", {4000}, DType::kUint8);
  const int bias = b.Constant("bias", {4000}, DType::kInt32), mask = b.Placeholder("mask", {4000}, DType::kInt64);
  const int y = b.Compute("y", {4000}, [&](const DagBuilder::Vars& i) {
    const Expr product = Mul(Cast(DType::kInt32, b.At(x, {i[0]})), Cast(DType::kInt32, b.At(w, {i[0]})));
    const Expr sum = Mul(Add(product, b.At(bias, {i[0]})), Cast(DType::kInt32, b.At(mask, {i[0]})));
    return Cast(DType::kInt32, Mul(Cast(DType::kFloat32, sum), FloatImm(0.3)));
  });
  const ComputeDag dag = b.Build({y}).value();
  const auto range = [&](int stage) {
    const Array values = RandomInput(dag, stage, 1);
    std::pair<int64_t, int64_t> found = {values.int_at(0), values.int_at(0)};
    for (int64_t i = 0; i < 4000; ++i) {
      found.first = std::min(found.first, values.int_at(i));
      found.second = std::max(found.second, values.int_at(i));
    }
    return found;
  };
  EXPECT_EQ(range(x), std::pair(int64_t{-128}, int64_t{127}));
  EXPECT_EQ(range(w), std::pair(int64_t{0}, int64_t{255}));
  EXPECT_EQ(range(mask), std::pair(int64_t{0}, int64_t{1}));
  EXPECT_LT(range(bias).first, -900);
  EXPECT_GT(range(bias).second, 900);
}

// Numbers of 16 bits in large tensors are moved into their range in another way than in small ones.
TEST(VerifyTest, LargeInputsBeginAsSmallOnes) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    const Array small = RandomInput(Matmul(100, 4, 10, dtype), 0, 3);
    const Array large = RandomInput(Matmul(10'000, 4, 10, dtype), 0, 3);
    EXPECT_TRUE(std::equal(small.data.begin(), small.data.end(), large.data.begin())) << NameOf(dtype);
  }
}

// A half is the nearest one to the number that is drawn, of which float32 has all digits.
TEST(VerifyTest, NumbersOf16BitsAreRoundedToNearest) {
  constexpr int64_t kElements = 200'000;
  Array exact(DType::kFloat32, {kElements});
  FillRandom(exact, 9);
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Array narrow(dtype, {kElements});
    FillRandom(narrow, 9);
    const float most = dtype == DType::kFloat16 ? 0.9995f : 0.996f;
    int64_t different = 0;
    for (int64_t i = 0; i < kElements; ++i)
      different += narrow.as<uint16_t>()[i] != FloatToNarrow(dtype, std::min(exact.as<float>()[i], most));
    EXPECT_EQ(different, 0) << NameOf(dtype);
  }
}

// No term of a sum is negligible, and half of them are negative.
TEST(VerifyTest, InputsStayAwayFromZero) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    const Array plain = RandomInput(Matmul(10, 10, 100, dtype), 0, 1);
    int negative = 0;
    for (int64_t i = 0; i < plain.elements(); ++i) {
      negative += plain.at(i) < 0;
      EXPECT_GE(std::fabs(plain.at(i)), 0.5);
      EXPECT_LE(std::fabs(plain.at(i)), 1);
    }
    EXPECT_NEAR(negative, 500, 100);
  }
}

TEST(VerifyTest, ComparesByThePolicyAndSaysWhereItIsWrong) {
  const ComputeDag dag = Matmul(1, 3, 16);
  const Tolerance tolerance = ToleranceOf(dag, 0);
  const Array reference = Floats({1, 3}, {2, 0, -2});
  const float allowed = static_cast<float>(tolerance.relative * tolerance.magnitude);
  const OutputComparison close = CompareOutputs(dag, {Floats({1, 3}, {2, 0.9f * allowed, -2})}, {reference});
  EXPECT_TRUE(close.ok);
  EXPECT_NEAR(close.max_abs_error, 0.9 * allowed, 1e-9);
  EXPECT_NEAR(close.max_rel_error, 0.9 * tolerance.relative, 1e-9);
  EXPECT_EQ(close.tolerance, tolerance.relative);
  const OutputComparison far = CompareOutputs(dag, {Floats({1, 3}, {2, 0.25f, -2})}, {reference});
  EXPECT_FALSE(far.ok);
  char text[200];
  std::snprintf(text, sizeof(text), "'c' [0, 1] is 0.25 where the reference implementation has 0 (allowed error %.3g)",
                tolerance.relative * tolerance.magnitude);
  EXPECT_EQ(far.text, text);
}

// The fault of one element in one of two outputs.
TEST(VerifyTest, TheOutputThatIsWrongIsNamed) {
  DagBuilder b;
  int x = b.Placeholder("x", {4});
  int y = b.Compute("y", {4}, [&](const DagBuilder::Vars& i) { return Add(b.At(x, {i[0]}), FloatImm(1)); });
  int z = b.Compute("z", {4}, [&](const DagBuilder::Vars& i) { return Mul(b.At(x, {i[0]}), FloatImm(3)); });
  const ComputeDag dag = b.Build({y, z}).value();
  const Array first = Floats({4}, {1.5f, 1.6f, 1.7f, 1.8f}), second = Floats({4}, {1.5f, 1.8f, 2.1f, 2.4f});
  const Array wrong = Floats({4}, {1.5f, 1.8f, 2.1f, 2.3f});
  EXPECT_TRUE(CompareOutputs(dag, {first, second}, {first, second}).ok);
  const OutputComparison found = CompareOutputs(dag, {first, wrong}, {first, second});
  EXPECT_FALSE(found.ok);
  EXPECT_EQ(found.text.substr(0, 20), "'z' [3] is 2.2999999");
}

TEST(VerifyTest, NumbersThatAreNoneMustBeTheSame) {
  ComputeDag dag = Matmul(1, 3, 16);
  float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  Array reference = Floats({1, 3}, {1, nan, inf});
  EXPECT_TRUE(CompareOutputs(dag, {reference}, {reference}).ok);
  for (const Array& wrong : {Floats({1, 3}, {nan, nan, inf}), Floats({1, 3}, {1, 1, inf}),
                             Floats({1, 3}, {1, nan, -inf}), Floats({1, 3}, {inf, nan, inf})}) {
    OutputComparison result = CompareOutputs(dag, {wrong}, {reference});
    EXPECT_FALSE(result.ok);
    EXPECT_EQ(result.max_abs_error, kInf);
  }
}

TEST(VerifyTest, IntegersMustBeEqual) {
  DagBuilder b;
  int x = b.Placeholder("x", {2}, DType::kInt64);
  int y = b.Compute("y", {2}, [&](const DagBuilder::Vars& i) { return b.At(x, {i[0]}); });
  ComputeDag dag = b.Build({y}).value();
  Array reference(DType::kInt64, {2}), got(DType::kInt64, {2});
  reference.set_int(0, 1000000);
  got.set_int(0, 1000000);
  EXPECT_TRUE(CompareOutputs(dag, {got}, {reference}).ok);
  got.set_int(0, 1000001);
  EXPECT_FALSE(CompareOutputs(dag, {got}, {reference}).ok);
}

TEST(VerifyTest, FindsPoison) {
  Array array = Floats({3}, {1, 2, 3});
  EXPECT_EQ(FirstUnwritten(array), -1);
  EXPECT_EQ(FirstNonFinite(array), -1);
  array.set(1, std::nan(""));
  EXPECT_EQ(FirstUnwritten(array), -1);
  EXPECT_EQ(FirstNonFinite(array), 1);
  std::fill(array.data.begin() + 8, array.data.end(), 0xff);
  EXPECT_EQ(FirstUnwritten(array), 2);
  Array half(DType::kFloat16, {2});
  EXPECT_EQ(FirstUnwritten(half), -1);
  half.data[2] = half.data[3] = 0xff;
  EXPECT_EQ(FirstUnwritten(half), 1);
}

TEST(VerifyTest, RefusesImpossibleTimes) {
  const ComputeDag dag = Matmul(100, 100, 100);  // 2e6 operations, 1.53e6 by Strassen's algorithm
  DeviceFacts facts;
  facts.flops = 1e9;
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {5.2e-4}}, dag, facts), "");
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {5.2e-4, 5e-4}}, dag, facts),
            "a sample of 500 us, where the device cannot be done before 510 us");
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {0}}, dag, facts), "a sample of 0 seconds: the clock did not move");
  EXPECT_EQ(ImpossibleTiming(Timing{}, dag, facts), "the timing has no samples");
  facts.arch = "sm_90";
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {1e-4}}, dag, facts), "");
  EXPECT_NE(ImpossibleTiming(Timing{.samples = {9e-5}}, dag, facts), "");
  const ComputeDag half = Matmul(100, 100, 100, DType::kFloat16);
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {1.6e-5}}, half, facts), "");
  EXPECT_NE(ImpossibleTiming(Timing{.samples = {1.5e-5}}, half, facts), "");
}

// Winograd F(4x4, 3x3) does a quarter of the multiplications that are counted, on matrix units 2.5 times as fast as the
// others (an H200) or 4.6 times (a B200): ten and more times what the peak for float32 allows.
TEST(VerifyTest, WinogradOnMatrixUnitsIsPossible) {
  DagBuilder b;
  const int64_t channels = 512;
  int x = b.Placeholder("x", {1, 58, 58, channels});
  int w = b.Constant("w", {3, 3, channels, channels});
  int c = b.Reduce("c", {1, 56, 56, channels}, {3, 3, channels}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(x, {i[0], Add(i[1], r[0]), Add(i[2], r[1]), r[2]}), b.At(w, {r[0], r[1], r[2], i[3]}));
  });
  const ComputeDag dag = b.Build({c}).value();
  DeviceFacts facts = DefaultFacts(Target::Parse("cuda -arch=sm_90").value());
  const double peak = dag.flops() / facts.flops;
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {peak / (4 * 2.5 * 0.8)}}, dag, facts), "");
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {peak / (4 * 4.6 * 0.8)}}, dag, facts), "");
  EXPECT_NE(ImpossibleTiming(Timing{.samples = {peak / 100}}, dag, facts), "");
  EXPECT_NE(ImpossibleTiming(Timing{.samples = {peak / 30}}, Matmul(2048, 2048, 2048), facts), "");
}

// A kernel that computes little has its outputs to write.
TEST(VerifyTest, OutputsTakeTimeToWrite) {
  DagBuilder b;
  int x = b.Placeholder("x", {64 << 20});
  int y = b.Compute("y", {64 << 20}, [&](const DagBuilder::Vars& i) { return b.At(x, {i[0]}); });
  const ComputeDag dag = b.Build({y}).value();
  DeviceFacts facts;
  facts.l2_bandwidth = 1e12;
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {4e-5}}, dag, facts), "");
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {3e-5}}, dag, facts),
            "a sample of 30 us, where the device cannot be done before 33.6 us");
}

}  // namespace
}  // namespace diapason
