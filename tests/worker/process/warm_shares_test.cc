#include "worker/process/warm_shares.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(WarmShares, AreThoseOfTheBestCandidates) {
  WarmShares shares;
  EXPECT_EQ(shares.Of("a", 2e-6), 1) << "not known";
  shares.Add("a", 2e-6, 1.2e-6);
  EXPECT_DOUBLE_EQ(shares.Of("a", 2e-6), 0.6);
  EXPECT_DOUBLE_EQ(shares.Of("a", 3e-6), 0.6);
  EXPECT_EQ(shares.Of("b", 2e-6), 1) << "of another task";
  shares.Add("a", 2.02e-6, 1.616e-6);
  EXPECT_DOUBLE_EQ(shares.Of("a", 2e-6), 0.8) << "the largest of those that are about as fast";
  shares.Add("a", 2.4e-6, 2.4e-6);
  EXPECT_DOUBLE_EQ(shares.Of("a", 2e-6), 0.8) << "that one is slower";
  EXPECT_EQ(shares.Of("a", 1.5e-6), 1) << "somewhere else there is a faster one";
  shares.Add("a", 1.5e-6, 0.75e-6);
  EXPECT_DOUBLE_EQ(shares.Of("a", 1.5e-6), 0.5) << "that of what is much faster stands for them all";
}

TEST(WarmShares, AreNoMoreThanAllOfATime) {
  WarmShares shares;
  shares.Add("a", 2e-6, 2.1e-6);
  EXPECT_EQ(shares.Of("a", 2e-6), 1);
  shares.Add("b", 2e-6, 0);
  EXPECT_EQ(shares.Of("b", 2e-6), 1);
}

}  // namespace
}  // namespace diapason
