#include <gtest/gtest.h>

#include <set>

#include "tests/tensor/dags.h"

namespace diapason {
namespace {

// Keys are stored in histories. If this fails the key has changed and every record made so far is lost: do not change
// the expectation, change the code back.
TEST(WorkloadKey, IsTheSameForEver) {
  EXPECT_EQ(testing_dags::Matmul(4, 5, 6).workload_key(), "f418b914e590eb60aa17893d8d03727e_4x5");
  EXPECT_EQ(testing_dags::ConvBiasRelu({56, 64, 64, 3, 1, 1}).workload_key(),
            "e0166df30c0c00c3df68a36555d71c8a_1x56x56x64");
}

TEST(WorkloadKey, DoesNotDependOnNamesNorOnTheOrderOfStages) {
  DagBuilder b;
  const int weight = b.Constant("kernel", {6, 5});
  b.Placeholder("unused", {9});
  const int data = b.Placeholder("data", {4, 6});
  const int product = b.Reduce("product", {4, 5}, {6}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(data, {i[0], r[0]}), b.At(weight, {r[0], i[1]}));
  });
  EXPECT_EQ(b.Build({product}).value().workload_key(), testing_dags::Matmul(4, 5, 6).workload_key());
}

TEST(WorkloadKey, TellsWorkloadsApart) {
  DagBuilder square;  // x * x is not x * y
  const int x = square.Placeholder("x", {4});
  const int xx = square.Compute("c", {4}, [&](auto& i) { return Mul(square.At(x, i), square.At(x, i)); });
  DagBuilder product;
  const int a = product.Placeholder("x", {4}), b = product.Placeholder("y", {4});
  const int ab = product.Compute("c", {4}, [&](auto& i) { return Mul(product.At(a, i), product.At(b, i)); });
  DagBuilder half;
  const int h = half.Placeholder("x", {4}, DType::kFloat16);
  const int hh = half.Compute("c", {4}, [&](auto& i) { return Mul(half.At(h, i), half.At(h, i)); });
  const std::set<std::string> keys = {
      testing_dags::Matmul(4, 5, 6).workload_key(),
      testing_dags::Matmul(4, 5, 7).workload_key(),
      testing_dags::Matmul(4, 5, 6, /*constant_weight=*/false).workload_key(),
      testing_dags::ConvBiasRelu({8, 3, 4, 3, 1, 1}).workload_key(),
      testing_dags::ConvBiasRelu({8, 3, 4, 1, 1, 0}).workload_key(),
      square.Build({xx}).value().workload_key(),
      product.Build({ab}).value().workload_key(),
      half.Build({hh}).value().workload_key(),
  };
  EXPECT_EQ(keys.size(), 8u);
}

TEST(WorkloadKey, EndsInTheShapeForPeople) {
  const std::string key = testing_dags::ConvBiasRelu({56, 64, 64, 3, 1, 1}).workload_key();
  EXPECT_EQ(key.substr(32), "_1x56x56x64");
}

}  // namespace
}  // namespace diapason
