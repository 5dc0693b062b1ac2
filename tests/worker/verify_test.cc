#include "worker/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "worker/candidate.h"

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
  bool negative = false;
  Array plain = RandomInput(Matmul(10, 10, 10), 0, 1);
  for (int64_t i = 0; i < plain.elements(); ++i) negative = negative || plain.at(i) < 0;
  EXPECT_TRUE(negative);
}

TEST(VerifyTest, ToleranceGrowsWithTheReduction) {
  EXPECT_DOUBLE_EQ(RelativeTolerance(Matmul(2, 2, 16), 2), 1e-4);
  EXPECT_DOUBLE_EQ(RelativeTolerance(Matmul(2, 2, 1024), 2), 1e-4);
  EXPECT_DOUBLE_EQ(RelativeTolerance(Matmul(2, 2, 4096), 2), 2e-4);
  EXPECT_DOUBLE_EQ(RelativeTolerance(Matmul(2, 2, 4096, DType::kFloat16), 2), 2e-2);
}

TEST(VerifyTest, ComparesRelativeToTheLargestValue) {
  ComputeDag dag = Matmul(1, 3, 16);
  Array reference = Floats({1, 3}, {100, 0, -50});
  Comparison close = CompareOutputs(dag, {Floats({1, 3}, {100, 0.009f, -50})}, {reference});
  EXPECT_TRUE(close.ok);
  EXPECT_NEAR(close.max_abs_error, 0.009, 1e-6);
  EXPECT_NEAR(close.max_rel_error, 0.00009, 1e-8);
  EXPECT_EQ(close.tolerance, 1e-4);
  Comparison far = CompareOutputs(dag, {Floats({1, 3}, {100, 0.02f, -50})}, {reference});
  EXPECT_FALSE(far.ok);
  EXPECT_EQ(far.text, "'c' [0, 1] is 0.0199999996 where the naive evaluation has 0 (allowed error 0.01)");
}

TEST(VerifyTest, NumbersThatAreNoneMustBeTheSame) {
  ComputeDag dag = Matmul(1, 3, 16);
  float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  Array reference = Floats({1, 3}, {1, nan, inf});
  EXPECT_TRUE(CompareOutputs(dag, {reference}, {reference}).ok);
  for (const Array& wrong : {Floats({1, 3}, {nan, nan, inf}), Floats({1, 3}, {1, 1, inf}),
                             Floats({1, 3}, {1, nan, -inf}), Floats({1, 3}, {inf, nan, inf})}) {
    Comparison result = CompareOutputs(dag, {wrong}, {reference});
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
  ComputeDag dag = Matmul(100, 100, 100);  // 2e6 operations
  DeviceFacts facts;
  facts.flops = 1e9;
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {4.1e-4}}, dag, facts), "");
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {4.1e-4, 3.9e-4}}, dag, facts),
            "a sample of 390 us, where the device cannot be done before 400 us");
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {0}}, dag, facts), "a sample of 0 seconds: the clock did not move");
  EXPECT_EQ(ImpossibleTiming(Timing{}, dag, facts), "the timing has no samples");
  EXPECT_EQ(ImpossibleTiming(Timing{.samples = {3e-5}}, Matmul(100, 100, 100, DType::kFloat16), facts), "");
}

}  // namespace
}  // namespace diapason
