#include "compiler/codegen/c/vector_expr_printer.h"

#include <gtest/gtest.h>

#include "tests/codegen/kernels.h"

namespace diapason {
namespace {

using testing::F;
using testing::I;

class CVectorExprPrinterTest : public ::testing::Test {
 protected:
  CVectorExprPrinterTest() {
    access_.Declare(testing::Global(0, "x", 64));
    access_.Declare(testing::Global(1, "narrow", 64, false, DType::kFloat16));
    access_.Declare(testing::Scoped(2, "acc", 64, Scope::kLocal));
    access_.BeginSlots(2, {{0, 8}, {8, 8}});
    access_.Declare(testing::Global(3, "bytes", 64, false, DType::kInt8));
  }

  const Expr lane_ = MakeVar("lane");
  Helpers helpers_{Dialect::kC};
  CAccessPrinter access_{helpers_};
  CVectorLibrary library_{helpers_};
  SharedValues shared_;
  SourceWriter out_;
  const VectorLanes lanes_{lane_, 8, access_.analyzer()};
  CVectorExprPrinter values_{lanes_, access_, library_, shared_, out_};
};

TEST_F(CVectorExprPrinterTest, LoadsAlongMemoryAreVectors) {
  EXPECT_EQ(values_.Text(testing::At(0, Add(lane_, I(16)))), "(f32x8)*(const f32x8u*)(x + 16)");
  EXPECT_EQ(values_.Text(testing::At(1, lane_, DType::kFloat16)), "f16x8_load(narrow)");
  EXPECT_EQ(values_.Text(testing::At(2, Add(lane_, I(8)))), "acc_8");
  EXPECT_EQ(values_.Text(testing::At(0, I(3))), "f32x8_set(x[3])");
}

TEST_F(CVectorExprPrinterTest, BytesAreLanesOfInt) {
  const Expr load = testing::At(3, Add(lane_, I(1)), DType::kInt8);
  EXPECT_EQ(values_.Text(load), "i8x8_load(bytes + 1)");
  EXPECT_EQ(values_.Text(Cast(DType::kInt32, load)), "i8x8_load(bytes + 1)");
  EXPECT_EQ(values_.Text(Cast(DType::kFloat32, load)), "__builtin_convertvector(i8x8_load(bytes + 1), f32x8)");
  EXPECT_EQ(values_.Text(Cast(DType::kUint8, load)), "(i8x8_load(bytes + 1) & 255)");
  EXPECT_EQ(values_.IntText(testing::At(0, lane_)), "__builtin_convertvector((f32x8)*(const f32x8u*)(x), i32x8)");
}

TEST_F(CVectorExprPrinterTest, WhatHasNoVectorFormIsComputedLaneByLane) {
  EXPECT_EQ(values_.Text(testing::At(0, Mul(lane_, I(2)))),
            "(f32x8){x[0], x[2], x[4], x[6], x[8], x[10], x[12], x[14]}");
}

TEST_F(CVectorExprPrinterTest, ASelectIsAMaskWhereBothBranchesMayBeRead) {
  const Expr x = testing::At(0, lane_);
  EXPECT_EQ(values_.Text(Select(Lt(x, F(0)), F(0), x)),
            "f32x8_select((i32x8)((f32x8)*(const f32x8u*)(x) < 0.0f), f32x8_set(0.0f), (f32x8)*(const f32x8u*)(x))");
  const std::string guarded = values_.Text(Select(Lt(lane_, I(3)), x, F(0)));
  EXPECT_EQ(guarded.find("_select"), std::string::npos) << "reads x[3]: " << guarded;
}

}  // namespace
}  // namespace diapason
