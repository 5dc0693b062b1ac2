// Operators on images and matrices that are put together from several of ours.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "../testing.h"
#include "model_builder.h"

namespace diapason {
namespace {

// Of Det on matrices x.
absl::StatusOr<Array> DetOf(const Array& x) {
  ModelBuilder model(11);
  std::vector<OnnxDim> shape(x.shape.begin(), x.shape.end());
  auto network = model.Input("x", shape, x.dtype).Node("Det", {"x"}, {"y"}).Output("y", x.dtype).Import();
  if (!network.ok()) return network.status();
  auto outputs = EvaluateNetwork(*network, {x});
  if (!outputs.ok()) return outputs.status();
  return (*outputs)[0];
}

// By rotations of pairs of rows (Givens), which share nothing with elimination; in double.
double DeterminantByRotations(std::vector<double> a, int64_t n) {
  double product = 1;
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = k + 1; i < n; ++i) {
      const double length = std::hypot(a[k * n + k], a[i * n + k]);
      if (length == 0) continue;
      const double c = a[k * n + k] / length, s = a[i * n + k] / length;
      for (int64_t j = 0; j < n; ++j) {
        const double upper = a[k * n + j], lower = a[i * n + j];
        a[k * n + j] = c * upper + s * lower;
        a[i * n + j] = c * lower - s * upper;
      }
    }
    product *= a[k * n + k];
  }
  return product;
}

TEST(Geometry, DeterminantsOfLargeMatricesAreThoseOfRotations) {
  for (const auto& [shape, seed] :
       std::vector<std::pair<Ints, uint64_t>>{{{5, 5}, 1}, {{2, 3, 7, 7}, 2}, {{64, 64}, 3}}) {
    SCOPED_TRACE(shape.back());
    const Array x = RandomArray({DType::kFloat32, shape}, seed);
    auto got = DetOf(x);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->shape, Ints(shape.begin(), shape.end() - 2));
    const int64_t n = shape.back(), matrices = x.elements() / (n * n);
    for (int64_t m = 0; m < matrices; ++m) {
      std::vector<double> matrix(n * n);
      for (int64_t i = 0; i < n * n; ++i) matrix[i] = x.at(m * n * n + i);
      const double want = DeterminantByRotations(matrix, n);
      EXPECT_NEAR(got->at(m) / want, 1, 1e-4) << m;
    }
  }
}

// 2 on the diagonal, the rows exchanged: in order, two exchanged, turned by one.
TEST(Geometry, DeterminantsHaveTheSignOfTheOrderOfRows) {
  constexpr int64_t kRows = 6;
  Array x(DType::kFloat32, {3, kRows, kRows});
  for (int64_t m = 0; m < 3; ++m) {
    for (int64_t row = 0; row < kRows; ++row) {
      const int64_t column = m == 1 && row < 2 ? 1 - row : m == 2 ? (row + 1) % kRows : row;
      x.set((m * kRows + row) * kRows + column, 2);
    }
  }
  auto got = DetOf(x);
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectNear(*got, Array::FromFloats({3}, {64, -64, -64}), 0);
}

TEST(Geometry, DeterminantsOfSingularMatricesAreZero) {
  Array x(DType::kFloat32, {2, 5, 5});
  for (int64_t i = 0; i < 25; ++i) x.set(i, i % 5 == 2 ? 0 : static_cast<double>(i * i % 11));  // a column of zeros
  auto got = DetOf(x);                                                                          // and all zeros
  ASSERT_TRUE(got.ok()) << got.status();
  ExpectNear(*got, Array::FromFloats({2}, {0, 0}), 0);
}

TEST(Geometry, DeterminantsOfHalvesAreComputedInFloat32) {
  Array x(DType::kFloat16, {5, 5});
  const double diagonal[] = {300, 300, 1.0 / 256, 1.0 / 256, 3};  // 90000 is more than float16 holds
  for (int64_t i = 0; i < 5; ++i) x.set(i * 6, diagonal[i]);
  auto got = DetOf(x);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_NEAR(got->at(0), 300 * 300 / 65536.0 * 3, 4e-3);
}

TEST(Geometry, MatricesThatAreTooLargeAreRefused) {
  EXPECT_EQ(DetOf(Array(DType::kFloat32, {65, 65})).status().message(),
            "cannot import 'model.onnx': node 'node_y' (Det of opset 11): its input is float32 65x65: square matrices "
            "of up to 64 rows are supported");
  EXPECT_EQ(DetOf(Array(DType::kFloat32, {5, 6})).status().message(),
            "cannot import 'model.onnx': node 'node_y' (Det of opset 11): its input is float32 5x6: square matrices of "
            "up to 64 rows are supported");
}

absl::StatusOr<Network> RoiAlignModel(const char* mode, int64_t samples) {
  return ModelBuilder(16)
      .Input("x", {1, 1, 4, 4})
      .Input("rois", {1, 4})
      .Input("of", {1}, DType::kInt64)
      .Node("RoiAlign", {"x", "rois", "of"}, {"y"}, {{"mode", mode}, {"sampling_ratio", samples}})
      .Output("y")
      .Import();
}

// Samples at 0.5, 1.5, 2.5 and the border, 3: of the last one, 16 counts whole.
TEST(Geometry, RegionsAreSampledByTheirSizeWhereTheModelDoesNotSay) {
  for (const auto& [mode, want] : {std::pair{"avg", 10.375f}, {"max", 16.0f}}) {
    auto network = RoiAlignModel(mode, 0);
    ASSERT_TRUE(network.ok()) << network.status();
    auto outputs = EvaluateNetwork(
        *network, {Counting({1, 1, 4, 4}), Array::FromFloats({1, 4}, {0.5f, 0.5f, 4.5f, 4.5f}), IntList({0})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectNear((*outputs)[0], Array::FromFloats({1, 1, 1, 1}, {want}), 1e-5);
  }
  EXPECT_EQ(RoiAlignModel("avg", -1).status().message(),
            "cannot import 'model.onnx': node 'node_y' (RoiAlign of opset 16): sampling_ratio cannot be -1");
}

}  // namespace
}  // namespace diapason
