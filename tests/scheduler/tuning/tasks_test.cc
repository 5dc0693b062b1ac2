// The tasks of a run: which are tuned, and in rounds of what size.
#include "scheduler/tuning/tasks.h"

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using TuningTasksTest = RunTest;

TEST_F(TuningTasksTest, OptionsThatMakeNoSenseAreRefused) {
  options_.trials = 0;
  EXPECT_EQ(MakeTasks(network_.tasks(), options_).status().message(), "the number of trials is 0: give at least 1");
  options_.trials = 10;
  options_.only = {2};
  EXPECT_EQ(MakeTasks(network_.tasks(), options_).status().message(), "there is no task 2: choose from 0 to 1");
  EXPECT_EQ(MakeTasks({}, options_).status().message(),
            "there is no task to tune: the network has no operator that runs");
}

TEST_F(TuningTasksTest, OnlyThoseThatAreSelectedAreScheduled) {
  options_.only = {1};
  const Tasks tasks = MakeTasks(network_.tasks(), options_).value();
  EXPECT_EQ(tasks.selected, std::vector<int>{1});
  EXPECT_EQ(tasks.scheduled_as, (std::vector<int>{-1, 0}));
  EXPECT_EQ(tasks.all.size(), 2u);
}

TEST_F(TuningTasksTest, ASmallBudgetHasSmallRounds) {
  EXPECT_EQ(tasks_.round_size, 100 / (4 * 2));
  options_.trials = 8;
  EXPECT_EQ(MakeTasks(network_.tasks(), options_)->round_size, 8);
  options_.trials = 1 << 20;
  EXPECT_EQ(MakeTasks(network_.tasks(), options_)->round_size, 64);
}

}  // namespace
}  // namespace diapason::tuning
