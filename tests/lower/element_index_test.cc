#include "compiler/lower/element_index.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/lower/test_kernel.h"

namespace diapason {
namespace {

// Stages 0 to 3: x, w, p = x + 1, y of the products of p by w.
ComputeDag ProductOf(int64_t rows, int64_t columns, int64_t k) {
  DagBuilder b;
  const int x = b.Placeholder("x", {rows, k}), w = b.Constant("w", {k, columns});
  const int p = b.Compute("p", {rows, k}, [&](auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  const int y = b.Reduce("y", {rows, columns}, {k}, Combiner::kSum, [&](auto& i, auto& r) {
    return Mul(b.At(p, {i[0], r[0]}), b.At(w, {r[0], i[1]}));
  });
  return b.Build({y}).value();
}
constexpr int kPackedWeights = 1, kFactor = 2, kProduct = 3;

int64_t IndexOf(const KernelContext& kernel, int id, int64_t row, int64_t column) {
  return testing::NumberAt(FlatIndex(kernel, id, {IntImm(row), IntImm(column)}), {});
}

TEST(FlatIndex, APartLiesAtItsPlaceInTheLargerTensor) {
  const OutputPlace places[] = {{.row = 4, .stride = 10, .offset = 6, .elements = 60},
                                {.row = 8, .stride = 9, .offset = 1, .elements = 30},
                                {.row = 2, .stride = 5, .offset = 0, .elements = 60},
                                {.row = 24, .stride = 24, .offset = 30, .elements = 60},
                                {.row = 3, .stride = 7, .offset = 2, .elements = 60}};
  for (const OutputPlace& place : places) {
    testing::TestKernel test(ProductOf(6, 4, 5), {}, kProduct, "cpu", place);
    for (int64_t row = 0; row < 6; ++row)
      for (int64_t column = 0; column < 4; ++column)
        EXPECT_EQ(IndexOf(test.kernel(), kProduct, row, column), place.At(row * 4 + column)) << place.ToString();
  }
}

TEST(FlatIndex, RowsOfACopyHaveUnusedElementsBehindThem) {
  testing::TestKernel test(
      ProductOf(6, 4, 5),
      {testing::ComputeAtStep(kFactor, kProduct, 0), testing::NumberStep(StepKind::kPadRows, kFactor, 3)}, kProduct);
  EXPECT_EQ(IndexOf(test.kernel(), kFactor, 1, 2), 1 * (5 + 3) + 2);
}

TEST(FlatIndex, CoreMatricesHaveRunsOfKOutermost) {
  testing::TestKernel test(ProductOf(64, 8, 16),
                           {testing::SplitStep(kProduct, 0, {16}),
                            testing::ComputeAtStep(kFactor, kProduct, 3),
                            testing::MemoryStep(kFactor, Memory::kShared),
                            {StepKind::kCoreMatrices, kFactor, {}, {}, -1, {}}},
                           kProduct, "opencl");
  const StageBounds& b = test.kernel().bounds.stages[kFactor];
  ASSERT_EQ(b.core_row, 4) << "16 bytes";
  EXPECT_EQ(IndexOf(test.kernel(), kFactor, 0, 3), 3);
  EXPECT_EQ(IndexOf(test.kernel(), kFactor, 2, 0), 2 * 4);
  EXPECT_EQ(IndexOf(test.kernel(), kFactor, 2, 9), 2 * b.core_stride() + 2 * 4 + 1);
}

TEST(FlatIndex, APackedLayoutHasAPlaceForEachElement) {
  // Columns in pieces of 3 innermost: [2][5][3] of [5][4].
  const Step pack{StepKind::kPack, kProduct, {}, {Factor::Of(1), Factor::Of(3)}, kPackedWeights, {2, 0, 3, 1}};
  const ComputeDag dag = ProductOf(6, 4, 5);
  const State state = Replay(dag, {pack}).value();
  const int packed = state.size() - 1;
  testing::TestKernel test(dag, {pack}, packed);
  EXPECT_EQ(StoredElements(test.kernel().state, test.kernel().bounds, packed), 2 * 5 * 3);
  std::set<int64_t> seen;
  for (int64_t row = 0; row < 5; ++row)
    for (int64_t column = 0; column < 4; ++column) {
      const int64_t at = IndexOf(test.kernel(), packed, row, column);
      EXPECT_EQ(at, (column / 3 * 5 + row) * 3 + column % 3);
      seen.insert(at);
    }
  EXPECT_EQ(seen.size(), 20);
}

}  // namespace
}  // namespace diapason
