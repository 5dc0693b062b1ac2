#include "worker/process/warm_shares.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace diapason {
namespace {

constexpr uint64_t kA = 1, kB = 2;

TEST(WarmShares, AreThoseOfTheBestCandidates) {
  WarmShares shares;
  EXPECT_EQ(shares.Of(kA, 2e-6), 1) << "not known";
  shares.Add(kA, 2e-6, 1.2e-6);
  EXPECT_DOUBLE_EQ(shares.Of(kA, 2e-6), 0.6);
  EXPECT_DOUBLE_EQ(shares.Of(kA, 3e-6), 0.6);
  EXPECT_EQ(shares.Of(kB, 2e-6), 1) << "of another task";
  shares.Add(kA, 2.02e-6, 1.616e-6);
  EXPECT_DOUBLE_EQ(shares.Of(kA, 2e-6), 0.8) << "the largest of those that are about as fast";
  shares.Add(kA, 2.4e-6, 2.4e-6);
  EXPECT_DOUBLE_EQ(shares.Of(kA, 2e-6), 0.8) << "that one is slower";
  EXPECT_EQ(shares.Of(kA, 1.5e-6), 1) << "somewhere else there is a faster one";
  shares.Add(kA, 1.5e-6, 0.75e-6);
  EXPECT_DOUBLE_EQ(shares.Of(kA, 1.5e-6), 0.5) << "that of what is much faster stands for them all";
}

TEST(WarmShares, AreNoMoreThanAllOfATime) {
  WarmShares shares;
  shares.Add(kA, 2e-6, 2.1e-6);
  EXPECT_EQ(shares.Of(kA, 2e-6), 1);
  shares.Add(kB, 2e-6, 0);
  EXPECT_EQ(shares.Of(kB, 2e-6), 1);
}

}  // namespace
}  // namespace diapason
