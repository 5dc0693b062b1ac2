#include "compiler/graph/padding/place_in_row.h"

#include "../testing.h"

namespace diapason {
namespace {

Array Numbers(const Ints& shape, const Ints& values, DType dtype = DType::kInt64) {
  Array array(dtype, shape);
  for (size_t i = 0; i < values.size(); ++i) array.set_int(static_cast<int64_t>(i), values[i]);
  return array;
}

TEST(PlaceInRow, OfAListIsItsStepAndWhatRemains) {
  const auto place = PlaceOfConstant(Numbers({3}, {1, 5, 9}), {1});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->step, 4);
  EXPECT_EQ(place->lower, 1);
  EXPECT_EQ(place->upper, 1);
  EXPECT_TRUE(place->IsOfRowsOf(4));
  EXPECT_FALSE(place->IsOfRowsOf(5));
}

// Two elements a row, and columns beside them that do not grow.
TEST(PlaceInRow, OfATableIsBoundedByAllElementsOfARow) {
  const auto place = PlaceOfConstant(Numbers({2, 4}, {0, 1, 3, 2, 1, 3, 6, 5}), {0, 2});
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->axis, 1u);
  EXPECT_EQ(place->step, 3);
  EXPECT_EQ(place->lower, -1);
  EXPECT_EQ(place->upper, 3);
  EXPECT_FALSE(place->IsOfRowsOf(3));
}

TEST(PlaceInRow, IsUnknownWithoutOneAxisThatGrows) {
  EXPECT_FALSE(PlaceOfConstant(Numbers({3}, {0, 4, 8}), {0}).has_value());
  EXPECT_FALSE(PlaceOfConstant(Numbers({2, 2}, {0, 1, 2, 3}), {1, 1}).has_value());
  EXPECT_FALSE(PlaceOfConstant(Numbers({1}, {0}), {1}).has_value());
  EXPECT_FALSE(PlaceOfConstant(Array(DType::kFloat32, {3}), {1}).has_value());
}

}  // namespace
}  // namespace diapason
