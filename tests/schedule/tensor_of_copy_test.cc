#include "compiler/schedule/tensor_of_copy.h"

#include <gtest/gtest.h>

#include "compiler/tensor/compute_dag.h"

namespace diapason {
namespace {

// A stage of rows that loads a tensor by `place`.
std::optional<TensorBox> TensorOf(const std::vector<int64_t>& tensor, const std::vector<int64_t>& rows,
                                  const std::function<std::vector<Expr>(const DagBuilder::Vars&)>& place,
                                  DType dtype = DType::kFloat16) {
  DagBuilder b;
  const int x = b.Placeholder("x", tensor, dtype);
  const int y = b.Compute("rows", rows, [&](const DagBuilder::Vars& i) { return b.At(x, place(i)); });
  return TensorOfCopy(State(b.Build({y}).value()), y);
}

TEST(TensorOfCopy, PlainLoadsAreTheTensorItself) {
  const auto tensor = TensorOf({10, 64}, {10, 64}, [](auto& i) { return std::vector<Expr>{i[0], i[1]}; });
  ASSERT_TRUE(tensor.has_value());
  EXPECT_EQ(tensor->extents, (std::vector<int64_t>{64, 10}));
  EXPECT_EQ(tensor->strides, (std::vector<int64_t>{1, 64}));
  EXPECT_EQ(tensor->offset, 0);
}

// Heads inside of rows, and one of three tensors that lie side by side.
TEST(TensorOfCopy, PartsAndOrdersOfATensorHaveStrides) {
  const auto tensor = TensorOf({10, 3, 4, 16}, {4, 10, 16}, [](auto& i) {
    return std::vector<Expr>{i[1], IntImm(1), i[0], i[2]};
  });
  ASSERT_TRUE(tensor.has_value());
  EXPECT_EQ(tensor->extents, (std::vector<int64_t>{16, 10, 4}));
  EXPECT_EQ(tensor->strides, (std::vector<int64_t>{1, 192, 16}));
  EXPECT_EQ(tensor->offset, 64);
}

TEST(TensorOfCopy, QuotientsOfReshapesCancel) {
  const auto tensor = TensorOf({7, 8, 64}, {56, 64}, [](auto& i) {
    return std::vector<Expr>{FloorDiv(i[0], 8), FloorMod(i[0], 8), i[1]};
  });
  ASSERT_TRUE(tensor.has_value());
  EXPECT_EQ(tensor->strides, (std::vector<int64_t>{1, 64}));
}

TEST(TensorOfCopy, OthersAreLeftToThreads) {
  EXPECT_FALSE(TensorOf({64, 10}, {10, 64}, [](auto& i) { return std::vector<Expr>{i[1], i[0]}; })) << "columns";
  EXPECT_FALSE(TensorOf({10, 60}, {10, 60}, [](auto& i) { return std::vector<Expr>{i[0], i[1]}; })) << "120 bytes";
  EXPECT_FALSE(TensorOf({5, 64}, {10, 64}, [](auto& i) { return std::vector<Expr>{FloorDiv(i[0], 2), i[1]}; }));
  EXPECT_TRUE(TensorOf(
      {10, 60}, {10, 60},
      [](auto& i) {
        return std::vector<Expr>{i[0], i[1]};
      },
      DType::kFloat32));
}

// Values that are computed on the way are no copies.
TEST(TensorOfCopy, ComputesNothing) {
  DagBuilder b;
  const int x = b.Placeholder("x", {8, 64});
  const int y = b.Compute("y", {8, 64}, [&](const DagBuilder::Vars& i) {
    return Max(b.At(x, {i[0], i[1]}), FloatImm(0));
  });
  EXPECT_FALSE(TensorOfCopy(State(b.Build({y}).value()), y));
}

}  // namespace
}  // namespace diapason
