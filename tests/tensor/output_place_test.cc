#include "compiler/tensor/output_place.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace diapason {
namespace {

TEST(OutputPlace, PutsRowsAtEqualDistances) {
  const OutputPlace place{2, 5, 3, 15};
  EXPECT_EQ(place.At(0), 3);
  EXPECT_EQ(place.At(1), 4);
  EXPECT_EQ(place.At(2), 8);
  EXPECT_EQ(place.At(5), 14);
  EXPECT_EQ(place.ToString(), "rows of 2 at 3 of every 5");
  EXPECT_EQ(OutputPlace().At(7), 7);
  EXPECT_EQ(OutputPlace().ToString(), "");
}

TEST(OutputPlace, HoldsWhatHasPlacesInsideTheLargerTensor) {
  EXPECT_TRUE((OutputPlace{2, 5, 3, 15}.Holds(6)));
  EXPECT_FALSE((OutputPlace{2, 5, 3, 15}.Holds(8))) << "a row more than there are";
  EXPECT_FALSE((OutputPlace{2, 5, 4, 15}.Holds(6))) << "the last row goes beyond the end";
  EXPECT_FALSE((OutputPlace{2, 1, 0, 15}.Holds(6))) << "rows on top of each other";
  EXPECT_FALSE((OutputPlace{2, 5, 3, 15}.Holds(5))) << "half a row";
  EXPECT_TRUE((OutputPlace{6, 6, 9, 15}.Holds(6)));
  EXPECT_FALSE((OutputPlace{6, 6, 10, 15}.Holds(6)));
  EXPECT_FALSE((OutputPlace{6, 6, -1, 15}.Holds(6)));
  EXPECT_FALSE(OutputPlace().Holds(6)) << "no larger tensor";
}

// Part of a part: wherever Compose finds a place it is that of the one within that of the other, and it finds the usual
// ones.
TEST(OutputPlace, ComposesToTheSameElements) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  int composed = 0;
  for (int n = 0; n < 3000; ++n) {
    OutputPlace inner, outer;
    inner.row = draw(1, 4);
    const int64_t rows = draw(1, 4), part = rows * inner.row;
    inner.stride = inner.row + draw(0, 3);
    inner.offset = draw(0, inner.stride - inner.row);
    inner.elements = rows * inner.stride;
    outer.row = draw(0, 1) ? inner.elements : inner.stride * (draw(0, 1) || rows % 2 ? 1 : 2);
    outer.stride = outer.row + draw(0, 3);
    outer.offset = draw(0, outer.stride - outer.row);
    outer.elements = inner.elements / outer.row * outer.stride;
    ASSERT_TRUE(inner.Holds(part) && outer.Holds(inner.elements));
    const auto place = Compose(outer, inner, part);
    if (!place) {
      EXPECT_TRUE(outer.row != inner.elements && outer.row != inner.stride);
      continue;
    }
    ++composed;
    ASSERT_TRUE(place->Holds(part));
    for (int64_t i = 0; i < part; ++i) ASSERT_EQ(place->At(i), outer.At(inner.At(i)));
  }
  EXPECT_GT(composed, 2000);
  EXPECT_EQ(Compose({}, {2, 5, 3, 15}, 6), (OutputPlace{2, 5, 3, 15}));
  EXPECT_EQ(Compose({2, 5, 3, 15}, {}, 6), (OutputPlace{2, 5, 3, 15}));
}

}  // namespace
}  // namespace diapason
