#include "scheduler/tuning/contenders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/median.h"

namespace diapason::tuning {
namespace {

using testing::ElementsAre;

TrialResult Took(double seconds, int samples = 3) {
  TrialResult result;
  result.space = 0;
  result.seconds = seconds;
  result.samples = samples;
  return result;
}

TEST(ContendersOf, AreThoseWithinFivePercentOfTheBestByTime) {
  TrialResults results;
  TrialResult raced = Took(0.98), wrong = Took(1.01), tried = Took(0.99);
  raced.stopped_early = true;
  const int last = results.Add(raced);
  const int third = results.Add(Took(1.04)), best = results.Add(Took(1)), second = results.Add(Took(1.02));
  results.Add(Took(1.06));
  results.Add(Took(0));  // failed
  wrong.verified = Verified::kFailed;
  results.Add(wrong);
  tried.verify_attempts = 3;  // and no verdict
  results.Add(tried);
  EXPECT_THAT(ContendersOf(results, best, {10, 5, 3}), ElementsAre(best, second, third, last));
  EXPECT_THAT(ContendersOf(results, best, {2, 5, 3}), ElementsAre(best, second));
  EXPECT_THAT(ContendersOf(results, best, {1, 5, 3}), ElementsAre(best));
}

TEST(ContendersOf, TheFastestThatWasMeasuredAgainIsAmongThem) {
  TrialResults results;
  const int best = results.Add(Took(1)), second = results.Add(Took(1.01)), again = results.Add(Took(1.03, 8));
  results.Add(Took(1.04, 8));
  EXPECT_THAT(ContendersOf(results, best, {3, 5, 3}), ElementsAre(best, again, second));
  EXPECT_THAT(ContendersOf(results, best, {2, 5, 3}), ElementsAre(best, again));
}

TEST(Turns, OneCandidateIsMeasuredOnce) {
  Turns turns({7}, 5);
  EXPECT_TRUE(turns.alone());
  EXPECT_EQ(turns.samples(), 5);
  EXPECT_THAT(turns.Order(), ElementsAre(7));
  turns.Add(7, {1, 2, 3, 4, 5});
  EXPECT_TRUE(turns.complete());
  EXPECT_THAT(turns.SamplesOf(7), ElementsAre(1, 2, 3, 4, 5));
}

TEST(Turns, SeveralAreMeasuredInTurnsEveryOtherOfThemReversed) {
  const Turns turns({7, 4, 9}, 5);
  EXPECT_THAT(turns.Order(), ElementsAre(7, 4, 9, 9, 4, 7, 7, 4, 9, 9, 4, 7));
  EXPECT_GT(turns.samples() * 4, 2 * 5);
}

TEST(Turns, AnEvenDriftAddsTheSameToTheMediansOfAll) {
  for (int count : {2, 3, 4}) {
    std::vector<int> contenders;
    for (int i = 0; i < count; ++i) contenders.push_back(i);
    Turns turns(contenders, 5);
    double now = 0;
    for (int contender : turns.Order()) {
      EXPECT_FALSE(turns.complete());
      std::vector<double> samples;
      for (int i = 0; i < turns.samples(); ++i) samples.push_back(++now);
      turns.Add(contender, samples);
    }
    EXPECT_TRUE(turns.complete());
    for (int contender : contenders)
      EXPECT_DOUBLE_EQ(Median(turns.SamplesOf(contender)), (1 + now) / 2) << contender << " of " << count;
  }
}

TEST(Turns, ACandidateThatFailsOnceHasNoSamples) {
  Turns turns({7, 4}, 5);
  std::map<int, int> measured;
  for (int contender : turns.Order())
    turns.Add(contender, ++measured[contender] == 2 && contender == 4 ? std::vector<double>() : std::vector<double>{1});
  EXPECT_TRUE(turns.complete());
  EXPECT_THAT(turns.SamplesOf(7), ElementsAre(1, 1, 1, 1));
  EXPECT_TRUE(turns.SamplesOf(4).empty());
}

}  // namespace
}  // namespace diapason::tuning
