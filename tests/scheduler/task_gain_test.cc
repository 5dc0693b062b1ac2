#include "scheduler/task_gain.h"

#include <gtest/gtest.h>

namespace diapason {
namespace {

GainOptions RoundsOfFour(double alpha) {
  GainOptions options;
  options.round_size = 4;
  options.alpha = alpha;
  return options;
}

void CountTrials(RunProgress* progress, int task, int trials, double best) {
  for (int i = 0; i < trials; ++i) progress->Count(task, best);
}

TEST(TaskGain, OnlyForwardTheBestSpreadOverTheRounds) {
  RunProgress progress(1);
  CountTrials(&progress, 0, 6, 8e-3);
  progress.Begin(0, 2);  // of the second round
  EXPECT_DOUBLE_EQ(TaskGain({{}}, RoundsOfFour(0)).Expected(0, progress), 4e-3);
}

TEST(TaskGain, OnlyBackwardTheGainOfThreeRounds) {
  RunProgress progress(1);
  const TaskGain gain({{}}, RoundsOfFour(1));
  CountTrials(&progress, 0, 1, 8e-3);
  CountTrials(&progress, 0, 11, 2e-3);
  EXPECT_EQ(gain.Expected(0, progress), 0);  // fewer than three rounds behind the first trial
  CountTrials(&progress, 0, 1, 2e-3);
  EXPECT_DOUBLE_EQ(gain.Expected(0, progress), 2e-3);
}

TEST(TaskGain, ATaskIsExpectedToReachTheRateOfSimilarOnes) {
  RunProgress progress(2);
  CountTrials(&progress, 0, 4, 1e-3);
  CountTrials(&progress, 1, 8, 10e-3);
  const double alone = 10e-3 / 2;
  EXPECT_DOUBLE_EQ(TaskGain({{1e9, "conv"}, {1e9, "conv"}}, RoundsOfFour(0)).Expected(1, progress), 10e-3 - 2 * 1e-3);
  EXPECT_DOUBLE_EQ(TaskGain({{1e9, "gemm"}, {1e9, "conv"}}, RoundsOfFour(0)).Expected(1, progress), alone);
  EXPECT_DOUBLE_EQ(TaskGain({{9e9, "conv"}, {1e9, "conv"}}, RoundsOfFour(0)).Expected(1, progress), alone);
  EXPECT_DOUBLE_EQ(TaskGain({{1e9, ""}, {1e9, ""}}, RoundsOfFour(0)).Expected(1, progress), alone);
}

TEST(TaskGain, ATaskThatStaysSlowLeavesItsGroup) {
  RunProgress progress(2);
  CountTrials(&progress, 0, 4, 1e-3);
  CountTrials(&progress, 1, 25, 10e-3);  // more than five rounds more
  EXPECT_DOUBLE_EQ(TaskGain({{1e9, "conv"}, {1e9, "conv"}}, RoundsOfFour(0)).Expected(1, progress), 10e-3 / (25.0 / 4));
}

}  // namespace
}  // namespace diapason
