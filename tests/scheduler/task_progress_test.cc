#include "scheduler/task_progress.h"

#include <gtest/gtest.h>

#include <vector>

namespace diapason {
namespace {

TEST(RunProgress, CountsTrialsOfATaskAndOfAll) {
  RunProgress progress(2);
  progress.Begin(0, 3);
  progress.Begin(1, 2);
  progress.GiveBack(0, 1);
  progress.Count(0, 2e-3);
  EXPECT_EQ(progress[0].in_flight, 2);
  EXPECT_EQ(progress[0].had(), 3);
  EXPECT_EQ(progress.in_flight(), 4);
  EXPECT_EQ(progress.trials(), 1);
  EXPECT_EQ(progress.had(), 5);
}

TEST(RunProgress, KeepsTheBestThroughFailures) {
  RunProgress progress(2);
  for (double best : {0.0, 3e-3, 0.0, 2e-3}) progress.Count(1, best);
  EXPECT_EQ(progress[1].history, (std::vector<double>{0, 3e-3, 3e-3, 2e-3}));
  EXPECT_EQ(progress.Latencies(), (std::vector<double>{0, 2e-3}));
}

TEST(RunProgress, ATinyFallIsNoGain) {
  RunProgress progress(1);
  for (double best : {1e-3, 0.9995e-3, 0.99e-3, 0.9899e-3}) progress.Count(0, best);
  EXPECT_EQ(progress[0].last_gain, 3);
}

TEST(RunProgress, ARefutedBestNeverWasOne) {
  RunProgress progress(1);
  for (double best : {0.0, 3e-3, 1e-3}) progress.Count(0, best);
  progress.Refute(0, 2e-3);
  EXPECT_EQ(progress[0].history, (std::vector<double>{0, 3e-3, 2e-3}));
  EXPECT_EQ(progress[0].best, 2e-3);
}

TEST(RunProgress, ATaskWithoutResultAfterARefutationIsNotDone) {
  RunProgress progress(1);
  progress.Count(0, 1e-3);
  progress.SetDone(0);
  progress.Refute(0, 2e-3);
  EXPECT_TRUE(progress[0].done);
  progress.Refute(0, 0);
  EXPECT_FALSE(progress[0].done);
  EXPECT_EQ(progress[0].history, (std::vector<double>{0}));
}

}  // namespace
}  // namespace diapason
