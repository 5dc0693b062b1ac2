#include "scheduler/convergence.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(Convergence, ComparesTheLastValueWithThatOfTheWindowsBeginning) {
  Convergence convergence;
  convergence.Add(10, 8);
  convergence.Add(20, 4);
  convergence.Add(30, 3);
  EXPECT_DOUBLE_EQ(convergence.Fall(30, 10), 0.25);
  EXPECT_DOUBLE_EQ(convergence.Fall(30, 15), 0.625);  // the newest value that is old enough
}

TEST(Convergence, IsUnknownBeforeThereIsAValueAsOldAsTheWindow) {
  Convergence convergence;
  EXPECT_EQ(convergence.Fall(100, 10), 1);
  convergence.Add(95, 8);
  EXPECT_EQ(convergence.Fall(100, 10), 1);
  convergence.Add(105, 8);
  EXPECT_EQ(convergence.Fall(105, 10), 0);
}

TEST(Convergence, ForgetsWhatWasNotTrue) {
  Convergence convergence;
  convergence.Add(10, 8);
  convergence.Add(20, 4);
  convergence.Forget();
  EXPECT_EQ(convergence.Fall(20, 10), 1);
}

}  // namespace
}  // namespace diapason
