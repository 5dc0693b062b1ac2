#include "compiler/codegen/c/vector_lanes.h"

#include <gtest/gtest.h>

#include "tests/codegen/kernels.h"

namespace diapason {
namespace {

using testing::I;

class VectorLanesTest : public ::testing::Test {
 protected:
  const Expr lane_ = MakeVar("lane"), row_ = MakeVar("row");
  Analyzer analyzer_;
  const VectorLanes lanes_{lane_, 8, analyzer_};
};

TEST_F(VectorLanesTest, TellsWhatDiffersBetweenLanes) {
  EXPECT_TRUE(lanes_.Differ(Add(row_, lane_)));
  EXPECT_FALSE(lanes_.Differ(Add(row_, I(1))));
  EXPECT_TRUE(IsInt(lanes_.At(Mul(lane_, I(3)), 5), 15));
  const Stride stride = lanes_.StrideAlong(Add(Mul(lane_, I(2)), I(7)));
  EXPECT_TRUE(stride.affine);
  EXPECT_EQ(stride.stride, 2);
  EXPECT_TRUE(IsInt(stride.base, 7));
}

TEST_F(VectorLanesTest, TheFirstAndTheLastLaneDecideAComparison) {
  const auto decided = [&](const Expr& condition) { return lanes_.Decide(condition).value(); };
  EXPECT_TRUE(IsInt(decided(Lt(lane_, I(8))).all, 1));
  EXPECT_TRUE(IsInt(decided(Lt(lane_, I(8))).none, 0));
  EXPECT_TRUE(IsInt(decided(Lt(lane_, I(0))).none, 1));
  EXPECT_TRUE(IsInt(decided(Lt(lane_, I(4))).all, 0)) << "some lanes";
  EXPECT_TRUE(IsInt(decided(Lt(lane_, I(4))).none, 0));
  EXPECT_TRUE(IsInt(decided(Not(Lt(lane_, I(0)))).all, 1));
  EXPECT_TRUE(IsInt(decided(And(Lt(lane_, I(8)), Lt(lane_, I(0)))).none, 1));
  EXPECT_TRUE(IsInt(decided(Or(Lt(lane_, I(8)), Lt(lane_, I(4)))).all, 1));
}

TEST_F(VectorLanesTest, OtherConditionsAreNotDecided) {
  EXPECT_FALSE(lanes_.Decide(Eq(lane_, I(3))));
  EXPECT_FALSE(lanes_.Decide(Lt(testing::At(0, lane_), testing::F(1))));
  EXPECT_FALSE(lanes_.Decide(Lt(Mul(lane_, lane_), I(3)))) << "not one way along the lanes";
  const Expr same = Lt(row_, I(3));
  EXPECT_TRUE(Equal(lanes_.Decide(same)->all, same));
}

TEST_F(VectorLanesTest, FindsTheConditionOfASelectThatCanBeDecided) {
  const Expr edge = Lt(Add(row_, lane_), I(20)), odd = Eq(lane_, I(3));
  const Expr value = Add(Select(odd, testing::F(1), testing::F(2)), Select(edge, testing::At(0, lane_), testing::F(0)));
  EXPECT_TRUE(Equal(lanes_.FindDecidable(value), edge));
  EXPECT_EQ(lanes_.FindDecidable(Select(Lt(row_, I(3)), testing::F(1), testing::F(2))), nullptr) << "of no lane";
}

}  // namespace
}  // namespace diapason
