#include "base/median.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(MedianTest, IsTheMiddleValueOrTheMeanOfTheTwo) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({5, 1, 3}), 3);
  EXPECT_EQ(Median({4, 1, 3, 100}), 3.5);
}

}  // namespace
}  // namespace diapason
