#include "compiler/tensor/array.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace diapason {
namespace {

TEST(Half, RoundTripOfEveryHalf) {
  for (uint32_t half = 0; half < 65536; ++half) {
    const float value = HalfToFloat(static_cast<uint16_t>(half));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else {
      EXPECT_EQ(FloatToHalf(value), half);
    }
  }
}

// By the definition of IEEE 754.
TEST(Half, EveryHalfHasItsValue) {
  Array all(DType::kFloat16, {65536});
  for (int half = 0; half < 65536; ++half) all.as<uint16_t>()[half] = static_cast<uint16_t>(half);
  std::vector<float> widened(65536);
  WidenFloats(all, 0, 65536, widened.data());
  for (int half = 0; half < 65536; ++half) {
    const int exponent = half >> 10 & 31, mantissa = half & 1023;
    const float value = HalfToFloat(static_cast<uint16_t>(half));
    EXPECT_EQ(std::signbit(value), half >= 0x8000) << half;
    if (exponent == 31 && mantissa != 0) {
      EXPECT_TRUE(std::isnan(value) && std::isnan(widened[half])) << half;
      continue;
    }
    const double magnitude = exponent == 31  ? std::numeric_limits<double>::infinity()
                             : exponent == 0 ? std::ldexp(mantissa, -24)
                                             : std::ldexp(mantissa + 1024, exponent - 25);
    EXPECT_EQ(std::fabs(value), magnitude) << half;
    EXPECT_EQ(widened[half], value) << half;
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(FloatToHalf(1.0f), 0x3c00);
  EXPECT_EQ(FloatToHalf(-2.0f), 0xc000);
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65519.996f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalf(1e30f), 0x7c00);
  for (int half = 0; half < 0x7bff; ++half) {  // between two neighbours, the middle goes to the even one
    const float low = HalfToFloat(static_cast<uint16_t>(half)), high = HalfToFloat(static_cast<uint16_t>(half + 1));
    const float middle = (low + high) / 2;
    ASSERT_EQ(FloatToHalf(middle), half % 2 == 0 ? half : half + 1) << half;
    ASSERT_EQ(FloatToHalf(std::nextafterf(middle, low)), half);
    ASSERT_EQ(FloatToHalf(std::nextafterf(middle, high)), half + 1);
  }
}

TEST(Bfloat16, RoundsToTheNearestOfAllItsNumbers) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {  // and the one behind, of which the last is infinite
    const float low = Bfloat16ToFloat(static_cast<uint16_t>(bits));
    ASSERT_EQ(FloatToBfloat16(low), bits);
    ASSERT_EQ(FloatToBfloat16(-low), bits | 0x8000);
    const auto middle = std::bit_cast<float>(bits << 16 | 0x8000);
    ASSERT_EQ(FloatToBfloat16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(FloatToBfloat16(std::bit_cast<float>(bits << 16 | 0x7fff)), bits);
    ASSERT_EQ(FloatToBfloat16(std::bit_cast<float>(bits << 16 | 0x8001)), bits + 1);
  }
  EXPECT_EQ(FloatToBfloat16(INFINITY), 0x7f80);
  EXPECT_EQ(FloatToBfloat16(std::numeric_limits<float>::max()), 0x7f80);
  // A NaN whose fraction is in the bits that are dropped stays one.
  EXPECT_TRUE(std::isnan(Bfloat16ToFloat(FloatToBfloat16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Array, ConvertsElements) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64, DType::kInt32, DType::kInt64,
                      DType::kInt8}) {
    Array array(dtype, {2, 3});
    EXPECT_EQ(array.elements(), 6);
    EXPECT_EQ(array.data.size(), 6u * BytesOf(dtype));
    array.set(4, -3);
    EXPECT_EQ(array.at(4), -3);
    EXPECT_EQ(array.int_at(4), -3);
    array.set_int(5, 7);
    EXPECT_EQ(array.at(5), 7);
    EXPECT_EQ(array.at(0), 0);
    EXPECT_EQ(DTypeFromName(NameOf(dtype)), dtype);
  }
  EXPECT_EQ(DTypeFromName("float31"), std::nullopt);
  EXPECT_EQ(Array(DType::kFloat32, {}).elements(), 1);
}

}  // namespace
}  // namespace diapason
