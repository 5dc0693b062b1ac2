#include "compiler/tensor/interpret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/tensor/dags.h"

namespace diapason {
namespace {

Array RandomArray(std::vector<int64_t> shape, uint32_t seed) {
  Array array(DType::kFloat32, std::move(shape));
  std::mt19937 random(seed);
  for (int64_t i = 0; i < array.elements(); ++i) array.set(i, std::uniform_real_distribution<>(-1, 1)(random));
  return array;
}

TEST(Interpret, MatmulMatchesLoops) {
  const ComputeDag dag = testing_dags::Matmul(3, 4, 5);
  const Array x = RandomArray({3, 5}, 1), w = RandomArray({5, 4}, 2);
  const auto out = Interpret(dag, {{0, x}, {1, w}});
  ASSERT_TRUE(out.ok()) << out.status();
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 4; ++j) {
      double sum = 0;
      for (int k = 0; k < 5; ++k) sum += x.at(i * 5 + k) * w.at(k * 4 + j);
      EXPECT_FLOAT_EQ((*out)[0].at(i * 4 + j), static_cast<float>(sum));
    }
  }
}

TEST(Interpret, ConvolutionMatchesLoops) {
  const int size = 6, ci = 3, co = 2, kernel = 3, stride = 2, pad = 1, o = 3;
  const ComputeDag dag = testing_dags::ConvBiasRelu({size, ci, co, kernel, stride, pad});
  const Array x = RandomArray({1, size, size, ci}, 1), w = RandomArray({kernel, kernel, ci, co}, 2);
  const Array bias = RandomArray({co}, 3);
  const auto out = Interpret(dag, {{0, x}, {1, w}, {2, bias}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].shape, (std::vector<int64_t>{1, o, o, co}));
  for (int p = 0; p < o * o * co; ++p) {
    const int h = p / co / o, v = p / co % o, c = p % co;
    double sum = bias.at(c);
    for (int r = 0; r < kernel * kernel * ci; ++r) {
      const int y = h * stride + r / ci / kernel - pad, z = v * stride + r / ci % kernel - pad;
      if (y >= 0 && y < size && z >= 0 && z < size) sum += x.at((y * size + z) * ci + r % ci) * w.at(r * co + c);
    }
    EXPECT_NEAR((*out)[0].at(p), std::max(sum, 0.0), 1e-6);
  }
}

TEST(Interpret, CombinersIntegersAndCalls) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4}, DType::kInt8);
  const int max = b.Reduce("max", {}, {4}, Combiner::kMax, [&](auto&, auto& r) { return b.At(x, {r[0]}); });
  const int min = b.Reduce("min", {}, {4}, Combiner::kMin, [&](auto&, auto& r) { return b.At(x, {r[0]}); });
  const int prod = b.Reduce("prod", {}, {4}, Combiner::kProd, [&](auto&, auto& r) { return b.At(x, {r[0]}); });
  const int mod = b.Compute("mod", {4}, [&](auto& i) { return FloorMod(b.At(x, {i[0]}), 5); });
  const int root = b.Compute(
      "root", {4}, [&](auto& i) { return Call("sqrt", {Call("abs", {Cast(DType::kFloat32, b.At(x, {i[0]}))})}); });
  const ComputeDag dag = b.Build({max, min, prod, mod, root}).value();
  Array values(DType::kInt8, {4});
  for (int i = 0; i < 4; ++i) values.set_int(i, std::vector<int>{-7, 4, 100, 2}[i]);
  const auto out = Interpret(dag, {{x, values}}).value();
  EXPECT_EQ(out[0].int_at(0), 100);
  EXPECT_EQ(out[1].int_at(0), -7);
  EXPECT_EQ(out[2].int_at(0), static_cast<int8_t>(-5600));  // wraps around
  EXPECT_EQ(out[3].int_at(0), 3);
  EXPECT_FLOAT_EQ(out[4].at(0), std::sqrt(7.0f));
}

TEST(Interpret, SelectPerformsTheChosenLoadOnly) {
  DagBuilder b;
  const int x = b.Placeholder("x", {3});
  const int y =
      b.Compute("y", {5}, [&](auto& i) { return Select(Lt(i[0], IntImm(3)), b.At(x, {i[0]}), FloatImm(-1)); });
  const ComputeDag dag = b.Build({y}).value();
  const auto out = Interpret(dag, {{x, Array::FromFloats({3}, {1, 2, 3})}});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ((*out)[0].at(2), 3);
  EXPECT_EQ((*out)[0].at(4), -1);
}

TEST(Interpret, HalfIsRoundedWhenStored) {
  DagBuilder b;
  const int x = b.Placeholder("x", {1}, DType::kFloat16);
  const int y = b.Compute("y", {1}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1, DType::kFloat16)); });
  Array value(DType::kFloat16, {1});
  value.set(0, 0.0001);
  EXPECT_EQ(Interpret(b.Build({y}).value(), {{x, value}}).value()[0].at(0), 1.0);
}

TEST(Interpret, NamesWhatIsWrong) {
  const ComputeDag dag = testing_dags::Matmul(3, 4, 5);
  EXPECT_EQ(Interpret(dag, {}).status().ToString(), "INVALID_ARGUMENT: no values are given for the input 'x'");
  EXPECT_EQ(Interpret(dag, {{0, Array(DType::kFloat32, {5, 3})}}).status().ToString(),
            "INVALID_ARGUMENT: the input 'x' is float32[3, 5], but its values are float32[5, 3]");
  DagBuilder b;
  const int x = b.Placeholder("x", {3});
  const int y = b.Compute("y", {5}, [&](auto& i) { return b.At(x, i); });
  EXPECT_EQ(Interpret(b.Build({y}).value(), {{x, Array(DType::kFloat32, {3})}}).status().ToString(),
            "OUT_OF_RANGE: stage 'y' reads outside a tensor at [3]");
}

}  // namespace
}  // namespace diapason
