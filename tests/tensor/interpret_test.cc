#include "compiler/tensor/interpret.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>

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

TEST(Interpret, RoundsToTypesOfFewerDigits) {
  DagBuilder b;
  const int x = b.Placeholder("x", {4});
  const int tf32 = b.Compute("tf32", {4}, [&](auto& i) { return Call("tf32", {b.At(x, {i[0]})}); });
  const int bfloat16 = b.Compute("bfloat16", {4}, [&](auto& i) { return Call("bfloat16", {b.At(x, {i[0]})}); });
  const ComputeDag dag = b.Build({tf32, bfloat16}).value();
  Array values(DType::kFloat32, {4});
  const std::vector<double> given = {1 + 0x1p-11, -(1 + 0x1p-12), 3, std::nan("")};
  for (int i = 0; i < 4; ++i) values.set(i, given[i]);
  const auto out = Interpret(dag, {{x, values}}).value();
  EXPECT_EQ(out[0].at(0), 1 + 0x1p-10);  // half away from zero
  EXPECT_EQ(out[0].at(1), -1);
  EXPECT_EQ(out[1].at(0), 1);
  for (const Array& rounded : out) {
    EXPECT_EQ(rounded.at(2), 3);
    EXPECT_TRUE(std::isnan(rounded.at(3)));
  }
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

// Points are evaluated in groups; conditions that differ within one keep each point's own way.
TEST(Interpret, ConditionsHoldPointByPoint) {
  constexpr int64_t kLength = 600;
  DagBuilder b;
  const int x = b.Placeholder("x", {kLength / 2}, DType::kInt32);
  const int chosen = b.Compute("chosen", {kLength}, [&](auto& i) {
    return Select(Eq(FloorMod(i[0], 3), IntImm(0)), b.At(x, {FloorDiv(i[0], 2)}),
                  Select(Lt(i[0], IntImm(kLength / 2)), b.At(x, {i[0]}), IntImm(-5, DType::kInt32)));
  });
  // The second argument would read outside where the first decides.
  const Expr limit = IntImm(40, DType::kInt32);
  const int both = b.Compute("both", {kLength},
                             [&](auto& i) { return And(Lt(i[0], IntImm(kLength / 2)), Lt(b.At(x, {i[0]}), limit)); });
  const int either = b.Compute("either", {kLength},
                               [&](auto& i) { return Or(Le(IntImm(kLength / 2), i[0]), Lt(b.At(x, {i[0]}), limit)); });
  const ComputeDag dag = b.Build({chosen, both, either}).value();
  Array values(DType::kInt32, {kLength / 2});
  for (int64_t i = 0; i < kLength / 2; ++i) values.set_int(i, 7 * i % 101);
  const auto out = Interpret(dag, {{x, values}});
  ASSERT_TRUE(out.ok()) << out.status();
  for (int64_t i = 0; i < kLength; ++i) {
    const bool inside = i < kLength / 2;
    EXPECT_EQ((*out)[0].int_at(i), i % 3 == 0 ? values.int_at(i / 2) : inside ? values.int_at(i) : -5) << i;
    EXPECT_EQ((*out)[1].int_at(i), inside && values.int_at(i) < 40) << i;
    EXPECT_EQ((*out)[2].int_at(i), !inside || values.int_at(i) < 40) << i;
  }
}

// Along the output's last axis or along the reduction's: each sum is added from its first term to its last.
TEST(Interpret, SumsHaveTheOrderOfTheirTerms) {
  for (const auto& [rows, columns, depth] :
       {std::tuple<int64_t, int64_t, int64_t>{2, 3, 700}, {2, 700, 3}, {1, 1, 513}, {3, 257, 300}}) {
    const ComputeDag dag = testing_dags::Matmul(rows, columns, depth);
    const Array x = RandomArray(dag.stage(0).shape(), 1), w = RandomArray(dag.stage(1).shape(), 2);
    const Array got = Interpret(dag, {{0, x}, {1, w}}).value()[0];
    ASSERT_EQ(got.shape, (std::vector<int64_t>{rows, columns}));
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < depth; ++k) sum += x.at(i * depth + k) * w.at(k * columns + j);
        EXPECT_EQ(got.at(i * columns + j), static_cast<float>(sum)) << i << ", " << j;
      }
    }
  }
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
  EXPECT_EQ(Interpret(dag, std::map<int, Array>()).status().ToString(),
            "INVALID_ARGUMENT: no values are given for the input 'x'");
  EXPECT_EQ(Interpret(dag, {{0, Array(DType::kFloat32, {5, 3})}}).status().ToString(),
            "INVALID_ARGUMENT: the input 'x' is float32[3, 5], but its values are float32[5, 3]");
  DagBuilder b;
  const int x = b.Placeholder("x", {3});
  const int y = b.Compute("y", {5}, [&](auto& i) { return b.At(x, i); });
  EXPECT_EQ(Interpret(b.Build({y}).value(), {{x, Array(DType::kFloat32, {3})}}).status().ToString(),
            "OUT_OF_RANGE: stage 'y' reads outside a tensor at [3]");
  DagBuilder long_one;
  const int z = long_one.Placeholder("z", {2, 290});
  const int sum = long_one.Reduce("sum", {2}, {300}, Combiner::kSum, [&](auto& i, auto& r) {
    return long_one.At(z, {i[0], r[0]});
  });
  EXPECT_EQ(Interpret(long_one.Build({sum}).value(), {{z, Array(DType::kFloat32, {2, 290})}}).status().ToString(),
            "OUT_OF_RANGE: stage 'sum' reads outside a tensor at [0, 290]");
}

}  // namespace
}  // namespace diapason
