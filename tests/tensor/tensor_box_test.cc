#include "compiler/tensor/tensor_box.h"

#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace diapason {
namespace {

// Rows of 64 float16 numbers, 10 of them every 128.
const TensorBox kRows = {.extents = {64, 10}, .strides = {1, 128}, .box = {64, 8}, .swizzle = 128};

TEST(TensorBox, SizesFollowFromExtents) {
  EXPECT_EQ(kRows.rank(), 2);
  EXPECT_EQ(kRows.elements(), 64 * 8);
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

// 3x3 windows at every second pixel of 4 images of 8x6 pixels and 64 channels, with a border of one pixel.
const TensorBox kWindows = {.extents = {64, 6, 8, 4},
                            .strides = {1, 64, 384, 3072},
                            .box = {64, 16},
                            .swizzle = 128,
                            .windows = {{.first = -1, .windows = 3, .step = 2, .elements = 3},
                                        {.first = -1, .windows = 4, .step = 2, .elements = 3}}};

TEST(TensorBox, WindowsHaveShortNumbers) {
  const auto with = [](auto change) {
    TensorBox box = kWindows;
    change(box);
    return IsCopyable(box, 2, 1 << 20);
  };
  EXPECT_EQ(kWindows.elements(), 64 * 16);
  EXPECT_TRUE(with([](TensorBox&) {}));
  EXPECT_FALSE(IsCopyable(kWindows, 2, 4 * 8 * 6 * 64 - 1));
  EXPECT_TRUE(with([](TensorBox& b) { b.box[1] = 1024; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.box[1] = 1025; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.box.push_back(1); }));
  EXPECT_FALSE(with([](TensorBox& b) { b.windows.pop_back(); }));
  EXPECT_TRUE(with([](TensorBox& b) { b.windows[0].step = 8; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.windows[0].step = 9; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.windows[1].step = 0; }));
  EXPECT_TRUE(with([](TensorBox& b) { b.windows[1].first = -128, b.windows[1].windows = 10; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.windows[1].first = -129, b.windows[1].windows = 10; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.windows[1].first = -128; })) << "the last begins at -122, 129 before pixel 7";
  EXPECT_TRUE(with([](TensorBox& b) { b.windows[1].windows = 68; })) << "the last begins 128 pixels behind the first";
  EXPECT_FALSE(with([](TensorBox& b) { b.windows[1].windows = 69; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.windows[1].windows = 0; }));
  EXPECT_TRUE(with([](TensorBox& b) { b.windows[1].apart = 127; }));
  EXPECT_FALSE(with([](TensorBox& b) { b.windows[1].apart = 128; }));
  // With three dimensions of images there are five bits, with one sixteen.
  const auto of = [](std::vector<int64_t> extents, const WindowDim& dim) {
    TensorBox box = kWindows;
    box.strides = {1};
    for (size_t d = 0; d + 1 < extents.size(); ++d) box.strides.push_back(box.strides[d] * extents[d]);
    box.windows.assign(extents.size() - 2, dim);
    box.extents = std::move(extents);
    return IsCopyable(box, 2, 1 << 20);
  };
  EXPECT_TRUE(of({64, 8, 8, 8, 2}, {.first = -16, .windows = 8}));
  EXPECT_FALSE(of({64, 8, 8, 8, 2}, {.first = -17, .windows = 8}));
  EXPECT_TRUE(of({64, 300, 2}, {.first = -300, .windows = 300, .elements = 300}));
}

TEST(TensorBox, TheDriverTakesCornersOfWindows) {
  const DriverTensorBox box = ForDriver(kWindows, 2);
  EXPECT_EQ(box.extents, (std::vector<uint64_t>{64, 6, 8, 4}));
  EXPECT_EQ(box.strides, (std::vector<uint64_t>{128, 768, 6144}));
  EXPECT_EQ(box.box, (std::vector<uint32_t>{64, 16}));
  EXPECT_EQ(box.first, (std::vector<int>{-1, -1}));
  EXPECT_EQ(box.last, (std::vector<int>{-2, -2})) << "windows begin at -1, 1, 3 of 6 and -1, 1, 3, 5 of 8";
  EXPECT_EQ(box.steps, (std::vector<uint32_t>{1, 2, 2, 1}));
  EXPECT_TRUE(ForDriver(kRows, 2).steps.empty());
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
    for (int64_t WindowDim::*field :
         {&WindowDim::first, &WindowDim::windows, &WindowDim::step, &WindowDim::elements, &WindowDim::apart}) {
      TensorBox box = kWindows;
      if (number == -1 && field == &WindowDim::first) continue;  // a border
      box.windows[1].*field = number;
      EXPECT_FALSE(IsCopyable(box, 2, 1 << 20)) << number;
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
