#include "scheduler/search/proposals.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

TEST(Proposals, CountsTrialsOfEachSpaceOnce) {
  Proposals proposals(2);
  proposals.AddProposed(1, 11);
  proposals.AddMeasured(1, 11);
  proposals.AddProposed(1, 11);
  proposals.AddMeasured(0, 12);
  proposals.AddKnown(13);
  EXPECT_EQ(proposals.trials(0), 1);
  EXPECT_EQ(proposals.trials(1), 1);
  for (uint64_t hash : {11, 12, 13}) EXPECT_TRUE(proposals.contains(hash));
  EXPECT_FALSE(proposals.contains(14));
}

TEST(Proposals, AReleasedOneIsNoTrialAndMayBeProposedAgain) {
  Proposals proposals(1);
  proposals.AddProposed(0, 11);
  proposals.Release(11);
  EXPECT_FALSE(proposals.contains(11));
  EXPECT_EQ(proposals.trials(0), 0);
  proposals.Release(11);
  EXPECT_EQ(proposals.trials(0), 0);
  proposals.AddProposed(0, 11);
  EXPECT_EQ(proposals.trials(0), 1);
  proposals.Release(12);
  EXPECT_EQ(proposals.trials(0), 1);
}

TEST(Proposals, LessIsToComeAfterMoreTrials) {
  EXPECT_EQ(StillToCome(0), StillToCome(1));
  EXPECT_GT(StillToCome(1), StillToCome(4));
  EXPECT_GT(StillToCome(1000), 0);
}

}  // namespace
}  // namespace diapason
