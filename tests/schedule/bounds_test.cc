#include "compiler/schedule/bounds.h"

#include <gtest/gtest.h>

#include <utility>

namespace diapason {
namespace {

// The access of the last stage to the first one.
Access AccessOf(const ComputeDag& dag) {
  const Skeleton skeleton{State(dag)};
  EXPECT_EQ(skeleton.accesses(dag.size() - 1).size(), 1u);
  return skeleton.accesses(dag.size() - 1).at(0);
}

// Rows of 12 as heads of 3 by 4: written with quotients and remainders of the place in all of the tensor.
TEST(Accesses, OfAReshapedTensorAreSumsOfAxesWhereQuotientsCancel) {
  DagBuilder b;
  const int x = b.Placeholder("x", {5, 12});
  const int heads = b.Compute("heads", {5, 3, 4}, [&](const auto& i) {
    const Expr place = Add(Mul(Add(Mul(i[0], IntImm(3)), i[1]), IntImm(4)), i[2]);
    return b.At(x, {FloorDiv(place, 12), FloorMod(place, 12)});
  });
  const Access access = AccessOf(b.Build({heads}).value());
  ASSERT_EQ(access.dims.size(), 2u);
  ASSERT_TRUE(access.dims[0].affine);
  ASSERT_EQ(access.dims[0].axes.size(), 1u);
  EXPECT_EQ(access.dims[0].axes[0], std::make_pair(0, int64_t{1}));
  ASSERT_TRUE(access.dims[1].affine);
  ASSERT_EQ(access.dims[1].axes.size(), 2u);
  EXPECT_EQ(access.dims[1].axes[0], std::make_pair(1, int64_t{4}));
  EXPECT_EQ(access.dims[1].axes[1], std::make_pair(2, int64_t{1}));
}

TEST(Accesses, OfAReshapedTensorKeepQuotientsThatDoNotCancel) {
  DagBuilder b;
  const int x = b.Placeholder("x", {5, 12});
  const int other = b.Compute("other", {6, 10}, [&](const auto& i) {
    const Expr place = Add(Mul(i[0], IntImm(10)), i[1]);
    return b.At(x, {FloorDiv(place, 12), FloorMod(place, 12)});
  });
  const Access access = AccessOf(b.Build({other}).value());
  for (const Access::Dim& dim : access.dims) {
    EXPECT_FALSE(dim.affine);
    EXPECT_EQ(dim.moved_by.size(), 2u);
  }
}

// A tile of 2 rows in shared memory, padded by `unit` elements where that is needed for an odd number of them.
int64_t PaddingOf(int64_t row, int32_t unit) {
  DagBuilder b;
  const int x = b.Placeholder("x", {8, row});
  const int y = b.Compute("y", {8, row}, [&](const auto& i) { return Add(b.At(x, i), FloatImm(1)); });
  State state(b.Build({y}).value());
  const int copy = 2;
  for (const Step& step : {Step{StepKind::kSplit, y, {0}, {Factor::Of(2)}},
                           Step{StepKind::kCacheRead, x, {}, {}, -1, {static_cast<int32_t>(Memory::kShared), y}},
                           Step{StepKind::kComputeAt, copy, {2}, {Factor{0}}, y},
                           Step{StepKind::kOddRows, copy, {}, {Factor::Of(unit)}, -1, {}}})
    EXPECT_EQ(state.Apply(step), absl::OkStatus());
  const Skeleton skeleton(std::move(state));
  Bounds bounds;
  skeleton.Infer({}, &bounds);
  EXPECT_EQ(bounds.stages[copy].buffer, (std::vector<int64_t>{2, row}));
  EXPECT_EQ(bounds.stages[copy].elements(), 2 * (row + bounds.stages[copy].row_padding));
  return bounds.stages[copy].row_padding;
}

TEST(RowPadding, OfAnOddNumberOfUnitsIsWhatARowLacksOfOne) {
  EXPECT_EQ(PaddingOf(64, 4), 4);
  EXPECT_EQ(PaddingOf(12, 4), 0);
  EXPECT_EQ(PaddingOf(64, 8), 8);
  EXPECT_EQ(PaddingOf(40, 8), 0);
  EXPECT_EQ(PaddingOf(13, 4), 7);  // 20
  EXPECT_EQ(PaddingOf(9, 0), 0);
}

}  // namespace
}  // namespace diapason
