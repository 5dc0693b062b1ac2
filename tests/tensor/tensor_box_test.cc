#include "compiler/tensor/tensor_box.h"

#include <limits>

#include "gtest/gtest.h"

namespace diapason {
namespace {

// Rows of 64 float16 numbers, 10 of them every 128.
const TensorBox kRows = {.extents = {64, 10}, .strides = {1, 128}, .box = {64, 8}, .swizzle = 128};

TEST(TensorBox, SizesFollowFromExtents) {
  EXPECT_EQ(kRows.rank(), 2);
  EXPECT_EQ(kRows.elements(), 64 * 8);
  EXPECT_EQ(kRows.end(), 9 * 128 + 64);
}

TEST(TensorBox, ATensorLiesWithinItsBuffer) {
  EXPECT_TRUE(IsCopyable(kRows, 2, 9 * 128 + 64));
  EXPECT_FALSE(IsCopyable(kRows, 2, 9 * 128 + 63));
  TensorBox later = kRows;
  later.offset = 8;
  EXPECT_TRUE(IsCopyable(later, 2, 9 * 128 + 64 + 8));
  EXPECT_FALSE(IsCopyable(later, 2, 9 * 128 + 64 + 7));
  later.offset = 4;
  EXPECT_FALSE(IsCopyable(later, 2, 10000)) << "no multiple of 16 bytes";
}

TEST(TensorBox, HardwareTakesUnitsOf16BytesAndSmallBoxes) {
  const auto with = [](auto change) {
    TensorBox box = kRows;
    change(box);
    return IsCopyable(box, 2, 1 << 20);
  };
  EXPECT_TRUE(with([](TensorBox&) {}));
  EXPECT_TRUE(with([](TensorBox& b) { b.box[1] = 256; })) << "more rows than there are";
  EXPECT_FALSE(with([](TensorBox& b) { b.box[1] = 257; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.box[1] = 0; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.strides[1] = 12; })) << "24 bytes";
  EXPECT_FALSE(with([](TensorBox& b) { b.strides[0] = 2; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.box[0] = 32; })) << "less than the swizzle";
  EXPECT_TRUE(with([](TensorBox& b) { b.box[0] = 32, b.swizzle = 64; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.box[0] = 24, b.swizzle = 48; }));
  EXPECT_TRUE(with([](TensorBox& b) { b.box[0] = 24, b.swizzle = 0; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.box[0] = 4, b.swizzle = 0; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.extents.assign(6, 1), b.strides.assign(6, 8), b.box.assign(6, 1); }));
  EXPECT_FALSE(with([](TensorBox& b) { b.strides.pop_back(); }));
  EXPECT_FALSE(with([](TensorBox& b) { b = {}; }));
}

// What a peer says may be anything.
TEST(TensorBox, NumbersThatOverflowAreRefused) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t number : {kMost, kMost / 2, int64_t{1} << 40, int64_t{-1}, -kMost}) {
    for (const int field : {0, 1, 2}) {
      TensorBox box = kRows;
      (field == 0 ? box.offset : field == 1 ? box.extents[1] : box.strides[1]) = number;
      EXPECT_FALSE(IsCopyable(box, 2, 1 << 20)) << field << " " << number;
    }
  }
}

TEST(TensorBox, TheDriverTakesBytesAndItsOwnNumbers) {
  TensorBox box = kRows;
  box.offset = 16;
  const DriverTensorBox halves = ForDriver(box, 2);
  EXPECT_EQ(halves.type, 1);
  EXPECT_EQ(halves.swizzle, 3);
  EXPECT_EQ(halves.offset, 32);
  EXPECT_EQ(halves.extents, (std::vector<uint64_t>{64, 10}));
  EXPECT_EQ(halves.strides, std::vector<uint64_t>{256});
  EXPECT_EQ(halves.box, (std::vector<uint32_t>{64, 8}));
  EXPECT_EQ(ForDriver(box, 1).type, 0);
  EXPECT_EQ(ForDriver(box, 4).type, 2);
}

}  // namespace
}  // namespace diapason
