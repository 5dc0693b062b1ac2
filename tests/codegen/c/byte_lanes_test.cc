#include "compiler/codegen/c/byte_lanes.h"

#include <gtest/gtest.h>

#include "tests/codegen/kernels.h"

namespace diapason {
namespace {

using testing::I;

class ByteLanesTest : public ::testing::Test {
 protected:
  ByteLanesTest() {
    access_.Declare(testing::Global(0, "x", 64));
    access_.Declare(testing::Global(1, "bytes", 64, false, DType::kInt8));
  }

  Expr Bytes(const Expr& index) const { return testing::At(1, index, DType::kInt8); }

  const Expr lane_ = MakeVar("lane"), row_ = MakeVar("row");
  Helpers helpers_{Dialect::kC};
  CAccessPrinter access_{helpers_};
  const VectorLanes lanes_{lane_, 8, access_.analyzer()};
  const ByteLanes bytes_{lanes_, access_};
};

TEST_F(ByteLanesTest, FindsWhereNeighboursBegin) {
  EXPECT_TRUE(IsInt(bytes_.From(Bytes(Add(lane_, I(3)))), 3));
  EXPECT_EQ(bytes_.From(Bytes(Mul(lane_, I(2)))), nullptr);
  EXPECT_EQ(bytes_.From(testing::At(0, lane_)), nullptr) << "floats";
}

TEST_F(ByteLanesTest, KnowsWhichValuesAreComputedAsVectors) {
  const Expr near = Bytes(lane_), far = Bytes(Mul(lane_, I(2))), zero = IntImm(0, DType::kInt8);
  EXPECT_TRUE(bytes_.HaveForm(near));
  EXPECT_FALSE(bytes_.HaveForm(far));
  EXPECT_TRUE(bytes_.HaveForm(Bytes(row_))) << "the same in all lanes";
  EXPECT_TRUE(bytes_.HaveForm(Max(near, zero)));
  EXPECT_FALSE(bytes_.HaveForm(Max(near, far)));
  EXPECT_TRUE(bytes_.HaveForm(Cast(DType::kUint8, testing::At(0, lane_))));
  EXPECT_FALSE(bytes_.HaveForm(Cast(DType::kFloat32, near))) << "no value of 8 bits";
  EXPECT_TRUE(bytes_.HaveForm(Select(Lt(row_, I(3)), near, zero)));
  EXPECT_FALSE(bytes_.HaveForm(Select(Lt(lane_, I(3)), near, zero)));
}

}  // namespace
}  // namespace diapason
