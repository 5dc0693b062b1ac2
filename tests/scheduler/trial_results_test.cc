#include "scheduler/trial_results.h"

#include <gtest/gtest.h>

#include <utility>

namespace diapason {
namespace {

TrialResult Ran(double seconds, bool stopped_early = false) {
  TrialResult result;
  result.space = 0;
  result.hash = static_cast<uint64_t>(seconds * 1e9);
  result.sketch = "tile";
  result.configuration = {static_cast<int32_t>(seconds * 1e6)};
  result.seconds = seconds;
  result.stopped_early = stopped_early;
  return result;
}

TEST(TrialResults, TheBestIsTheFastestThatWasTimedInFull) {
  TrialResults results;
  EXPECT_EQ(results.Best(false), -1);
  EXPECT_EQ(results.BestSeconds(), 0);
  results.Add(Ran(1e-3, /*stopped_early=*/true));
  EXPECT_EQ(results.Best(false), 0);
  results.Add(Ran(3e-3));
  results.Add(Ran(2e-3));
  results.Add(Ran(0));
  EXPECT_EQ(results.Best(false), 2);
  EXPECT_EQ(results.BestSeconds(), 2e-3);
  EXPECT_EQ(results.Best(true), -1);
  EXPECT_EQ(results.failed(), 1);
}

TEST(TrialResults, ARefutedResultMakesRoomForTheNext) {
  TrialResults results;
  const int slow = results.Add(Ran(3e-3)), fast = results.Add(Ran(2e-3));
  results.SetVerdict(slow, true);
  EXPECT_EQ(results.Best(true), slow);
  results.SetVerdict(fast, false);
  EXPECT_EQ(results.Best(false), slow);
  EXPECT_EQ(results.failed(), 1);
  results.SetVerdict(fast, false);
  EXPECT_EQ(results.failed(), 1);
}

TEST(TrialResults, MoreSamplesMayCostAResultItsPlace) {
  TrialResults results;
  const int first = results.Add(Ran(3e-3)), second = results.Add(Ran(2e-3, /*stopped_early=*/true));
  results.SetTime(second, 2e-3, 20);
  EXPECT_EQ(results.Best(false), second);
  EXPECT_EQ(results[second].samples, 20);
  results.SetTime(second, 4e-3, 40);
  EXPECT_EQ(results.Best(false), first);
}

TEST(TrialResults, TheFastestAreOfSpacesThatThereAre) {
  TrialResults results;
  TrialResult unknown = Ran(1e-3);
  unknown.space = -1;
  results.Add(std::move(unknown));
  results.Add(Ran(3e-3));
  results.Add(Ran(2e-3));
  results.Add(Ran(0));
  const std::vector<Tuned> fastest = results.Fastest();
  ASSERT_GE(fastest.size(), 1u);
  EXPECT_EQ(fastest[0].configuration, std::vector<int32_t>{2000});
}

}  // namespace
}  // namespace diapason
