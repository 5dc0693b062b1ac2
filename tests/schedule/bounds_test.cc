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

}  // namespace
}  // namespace diapason
