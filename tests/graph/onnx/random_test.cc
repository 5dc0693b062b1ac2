// Random numbers are constants when they have a seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "../testing.h"
#include "model_builder.h"

namespace diapason {
namespace {

using Attributes = std::vector<std::pair<std::string, OnnxValue>>;
using Ints = std::vector<int64_t>;

// What a model of one node gives. An input of `shape` is read by nodes that take one.
Array Outcome(const std::string& op, const Attributes& attributes, const std::vector<Array>& inputs,
              DType dtype = DType::kFloat32) {
  ModelBuilder model(22);
  std::vector<std::string> names;
  for (const Array& input : inputs) {
    names.push_back("x");
    model.Input("x", std::vector<OnnxDim>(input.shape.begin(), input.shape.end()));
  }
  const absl::StatusOr<Network> network = model.Node(op, names, {"y"}, attributes).Output("y", dtype).Import();
  EXPECT_TRUE(network.ok()) << network.status();
  if (!network.ok()) return Array(dtype, {0});
  const absl::StatusOr<std::vector<Array>> results = EvaluateNetwork(*network, inputs);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? results->at(0) : Array(dtype, {0});
}

struct Moments {
  double mean = 0, deviation = 0, least = std::numeric_limits<double>::infinity(), most = -least;
};

Moments MomentsOf(const Array& array) {
  Moments m;
  double squares = 0;
  const auto n = static_cast<double>(array.elements());
  for (int64_t i = 0; i < array.elements(); ++i) {
    const double value = array.at(i);
    m.mean += value / n;
    squares += value * value / n;
    m.least = std::min(m.least, value);
    m.most = std::max(m.most, value);
  }
  m.deviation = std::sqrt(squares - m.mean * m.mean);
  return m;
}

// Five deviations of a mean of 4,096 numbers are 0.08 of one's deviation.
TEST(Random, UniformNumbersFillTheirRange) {
  const Array y = Outcome("RandomUniform", {{"shape", Ints{64, 64}}, {"low", 2.f}, {"high", 6.f}, {"seed", 3.f}}, {});
  ASSERT_EQ(y.elements(), 4096);
  const Moments m = MomentsOf(y);
  EXPECT_GE(m.least, 2);
  EXPECT_LT(m.least, 2.01);
  EXPECT_LE(m.most, 6);
  EXPECT_GT(m.most, 5.99);
  EXPECT_NEAR(m.mean, 4, 0.08 * 1.155);
  EXPECT_NEAR(m.deviation, 4 / std::sqrt(12.0), 0.06);
}

TEST(Random, NormalNumbersHaveTheirMeanAndDeviation) {
  const Array y =
      Outcome("RandomNormalLike", {{"mean", -3.f}, {"scale", 0.5f}, {"seed", 3.f}}, {Array(DType::kFloat32, {64, 64})});
  ASSERT_EQ(y.elements(), 4096);
  const Moments m = MomentsOf(y);
  EXPECT_NEAR(m.mean, -3, 0.04);
  EXPECT_NEAR(m.deviation, 0.5, 0.03);
  EXPECT_LT(m.least, -4.2);  // 2.4 deviations: more than 99% of 4,096 have one
  EXPECT_GT(m.most, -1.8);
}

TEST(Random, OneSeedGivesTheSameNumbersAndAnotherOneOthers) {
  const auto of_seed = [](float seed) {
    return Outcome("RandomNormal", {{"shape", Ints{8}}, {"seed", seed}}, {}).data;
  };
  EXPECT_EQ(of_seed(1), of_seed(1));
  EXPECT_NE(of_seed(1), of_seed(2));
}

TEST(Random, BernoullisAreOneAsOftenAsTheInputSays) {
  Array probability(DType::kFloat32, {3, 4096});
  for (int64_t i = 0; i < probability.elements(); ++i) probability.set(i, i < 4096 ? 0 : i < 8192 ? 1 : 0.25);
  const Array y = Outcome("Bernoulli", {{"seed", 0.f}, {"dtype", int64_t{6}}}, {probability}, DType::kInt32);
  ASSERT_EQ(y.dtype, DType::kInt32);
  int64_t ones[3] = {};
  for (int64_t i = 0; i < y.elements(); ++i) ones[i / 4096] += y.int_at(i);
  EXPECT_EQ(ones[0], 0);
  EXPECT_EQ(ones[1], 4096);
  EXPECT_NEAR(static_cast<double>(ones[2]), 1024, 5 * std::sqrt(4096 * 0.25 * 0.75));
}

TEST(Random, MultinomialsDrawClassesByTheirProbabilities) {
  Array logits(DType::kFloat32, {2, 3});
  const double probabilities[] = {0.1, 0.6, 0.3, 0, 0, 1};
  for (int i = 0; i < 6; ++i) logits.set(i, i < 3 ? std::log(probabilities[i]) + 2 : 100 * probabilities[i]);
  const Array y = Outcome("Multinomial", {{"sample_size", int64_t{4000}}, {"seed", 7.f}}, {logits}, DType::kInt32);
  ASSERT_EQ(y.shape, (Ints{2, 4000}));
  int64_t drawn[2][3] = {};
  for (int64_t i = 0; i < y.elements(); ++i) {
    ASSERT_GE(y.int_at(i), 0);
    ASSERT_LT(y.int_at(i), 3);
    ++drawn[i / 4000][y.int_at(i)];
  }
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(static_cast<double>(drawn[0][c]), 4000 * probabilities[c],
                5 * std::sqrt(4000 * probabilities[c] * (1 - probabilities[c])));
  }
  EXPECT_EQ(drawn[1][2], 4000);
}

TEST(Random, WithoutASeedTheyAreRefused) {
  for (const std::string op : {"RandomNormal", "RandomUniform"}) {
    EXPECT_EQ(ModelBuilder(22).Node(op, {}, {"y"}, {{"shape", Ints{2}}}).Output("y").Import().status(),
              absl::InvalidArgumentError(
                  "cannot import 'model.onnx': node 'node_y' (" + op +
                  " of opset 22): its results would differ from run to run: give it the attribute 'seed', which makes "
                  "them constants, or pass random numbers in as an input of the model"));
  }
  const absl::Status huge =
      ModelBuilder(22)
          .Node("RandomNormal", {}, {"y"}, {{"shape", Ints{1 << 20, 1 << 20, 1 << 20}}, {"seed", 1.f}})
          .Output("y")
          .Import()
          .status();
  EXPECT_EQ(huge, absl::InvalidArgumentError(
                      "cannot import 'model.onnx': node 'node_y' (RandomNormal of opset 22): its result of shape "
                      "1048576x1048576x1048576 is too large for a constant"));
}

}  // namespace
}  // namespace diapason
