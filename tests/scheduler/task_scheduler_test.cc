#include "scheduler/task_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace diapason {
namespace {

// A task whose best falls from `start` to `floor` as trials go on; 0 while fewer than `fails` trials were made.
struct Curve {
  double weight = 1, start = 10e-3, floor = 1e-3;
  double half = 100;  // trials that halve what is left
  int64_t fails = 0;
  double flops = 1e9;
  std::string kind = "";
  double At(int64_t trial) const {
    if (trial < fails) return 0;
    return floor + (start - floor) * std::exp2(-static_cast<double>(trial - fails) / half);
  }
};

struct Fixture {
  Fixture(std::vector<Curve> of, TaskSchedulerOptions options, const std::string& objective = "sum",
          const std::vector<NetworkChoice>& choices = {})
      : curves(std::move(of)) {
    std::vector<ScheduledTask> tasks;
    std::vector<std::vector<NetworkWeight>> weights;
    for (const Curve& curve : curves) {
      tasks.push_back({curve.flops, curve.kind});
      weights.push_back({{"net", curve.weight}});
    }
    scheduler = std::make_unique<TaskScheduler>(tasks, Objective::Parse(objective, weights, choices).value(), options);
  }
  // One round from proposal to the last result; false at the end.
  bool Step() {
    const auto round = scheduler->Next(1000000);
    if (!round) return false;
    order.push_back(round->task);
    for (int i = 0; i < round->trials; ++i) {
      best[round->task] = curves[round->task].At(scheduler->task_trials(round->task));
      scheduler->Report(round->task, best[round->task]);
    }
    return true;
  }
  void RunAll() {
    while (Step()) ASSERT_LT(order.size(), 100000u);
  }
  double Total() const {
    double sum = 0;
    for (size_t i = 0; i < curves.size(); ++i) sum += curves[i].weight * best.at(static_cast<int>(i));
    return sum;
  }

  std::vector<Curve> curves;
  std::unique_ptr<TaskScheduler> scheduler;
  std::vector<int> order;
  std::map<int, double> best;
};

TaskSchedulerOptions Options(int64_t trials, int round = 16) {
  TaskSchedulerOptions options;
  options.trials = trials;
  options.round_size = round;
  return options;
}

TEST(TaskScheduler, DefaultsThenAWarmUpRoundOfEachTaskInOrder) {
  Fixture f({Curve{}, Curve{}, Curve{}}, Options(100));
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(f.Step());
  EXPECT_THAT(f.order, testing::ElementsAre(0, 1, 2, 0, 1, 2));
  for (int task = 0; task < 3; ++task) EXPECT_EQ(f.scheduler->task_trials(task), 16);
}

TEST(TaskScheduler, KeepsTheBudgetToTheTrial) {
  for (int64_t trials : {1, 2, 5, 33, 100, 1001}) {
    Fixture f({Curve{}, Curve{}, Curve{}}, Options(trials));
    f.RunAll();
    EXPECT_EQ(f.scheduler->trials(), trials);
    EXPECT_EQ(f.scheduler->reason(), StopReason::kTrials);
  }
}

TEST(TaskScheduler, WarmUpWaitsForTheDefaultOfTheTask) {
  Fixture f({Curve{}, Curve{}}, Options(100));
  EXPECT_EQ(f.scheduler->Next(100)->task, 0);
  EXPECT_EQ(f.scheduler->Next(100)->task, 1);
  EXPECT_FALSE(f.scheduler->Next(100));
  EXPECT_EQ(f.scheduler->reason(), StopReason::kNone);
  f.scheduler->Report(1, 1e-3);
  const auto round = f.scheduler->Next(100);
  ASSERT_TRUE(round);
  EXPECT_EQ(round->task, 1);
  EXPECT_EQ(round->trials, 15);
}

TEST(TaskScheduler, GivesMoreToTheTaskThatMattersMore) {
  Curve heavy, light;
  heavy.weight = 10;
  Fixture f({light, heavy}, Options(640));
  f.RunAll();
  EXPECT_GT(f.scheduler->task_trials(1), 2 * f.scheduler->task_trials(0));
}

TEST(TaskScheduler, BeatsAnEvenSplit) {
  std::vector<Curve> curves(6);
  curves[0].weight = 8;
  curves[1].start = 40e-3, curves[1].half = 300;
  curves[2].half = 5;
  curves[3].start = 2e-3;
  Fixture f(curves, Options(1200));
  f.RunAll();
  double even = 0;
  for (const Curve& curve : curves) even += curve.weight * curve.At(199);
  EXPECT_LT(f.Total(), 0.9 * even);
}

TEST(TaskScheduler, LeavesATaskThatNoLongerGains) {
  Curve converged;
  converged.half = 1;
  Curve learning;
  learning.half = 400;
  Fixture f({converged, learning}, Options(1600));
  f.RunAll();
  EXPECT_GT(f.scheduler->task_trials(1), 2 * f.scheduler->task_trials(0));
}

TEST(TaskScheduler, ATaskThatAlwaysFailsNeitherHogsNorStarves) {
  Curve failing;
  failing.fails = 1 << 30;
  Fixture f({Curve{}, failing, Curve{}}, Options(960));
  f.RunAll();
  EXPECT_EQ(f.scheduler->task_trials(1), 4 * 16);
  EXPECT_TRUE(f.scheduler->done(1));
  EXPECT_EQ(f.scheduler->trials(), 960);
  EXPECT_FALSE(f.scheduler->Value());
}

TEST(TaskScheduler, ATaskThatFailsAtFirstGetsItsChance) {
  Curve late;
  late.fails = 40;
  late.weight = 5;
  Fixture f({Curve{}, late, Curve{}}, Options(960));
  f.RunAll();
  EXPECT_GT(f.scheduler->best(1), 0);
  EXPECT_GT(f.scheduler->task_trials(1), 200);
}

TEST(TaskScheduler, ASingleFailingTaskEndsTheRun) {
  Curve failing;
  failing.fails = 1 << 30;
  Fixture f({failing}, Options(960));
  f.RunAll();
  EXPECT_EQ(f.scheduler->trials(), 64);
  EXPECT_EQ(f.scheduler->reason(), StopReason::kTasksDone);
}

TEST(TaskScheduler, SimilarTasksAreExpectedToReachSimilarRates) {
  // Tasks 1 and 2 are stuck at a tenth of the rate of task 0; only task 1 is of its kind.
  const auto trials = [](const std::string& kind_of_1) {
    std::vector<Curve> curves(3);
    for (Curve& curve : curves) curve.half = 1, curve.kind = "conv";
    curves[1].floor = curves[2].floor = 9e-3;
    curves[1].kind = kind_of_1;
    curves[2].kind = "other";
    TaskSchedulerOptions options = Options(140);
    options.epsilon = 0;
    Fixture f(curves, options);
    f.RunAll();
    return f.scheduler->task_trials(1);
  };
  EXPECT_GT(trials("conv"), trials("another") + 20);
}

TEST(TaskScheduler, RestsATaskWithoutGainAndEndsWhenAllRest) {
  TaskSchedulerOptions options = Options(100000);
  options.patience = 100;
  Curve flat;
  flat.half = 1;
  Fixture f({flat, flat}, options);
  f.RunAll();
  EXPECT_EQ(f.scheduler->reason(), StopReason::kTasksDone);
  EXPECT_LT(f.scheduler->trials(), 400);
}

TEST(TaskScheduler, StopsWhenLittleGainIsExpected) {
  TaskSchedulerOptions options = Options(100000);
  options.early_stop = 0.01;
  Fixture f({Curve{}, Curve{}}, options);
  f.RunAll();
  EXPECT_EQ(f.scheduler->reason(), StopReason::kNoGain);
  EXPECT_LT(f.scheduler->ExpectedGain(), 0.01);
  // Near the end of the curve, and not long after it.
  EXPECT_LT(f.Total(), 2 * 1.2e-3);
  EXPECT_LT(f.scheduler->trials(), 3000);
}

TEST(TaskScheduler, WithoutEarlyStopItGoesOn) {
  Fixture f({Curve{}, Curve{}}, Options(1400));
  f.RunAll();
  EXPECT_EQ(f.scheduler->trials(), 1400);
}

TEST(TaskScheduler, StopsWhenAllTargetsAreReached) {
  Fixture f({Curve{}, Curve{}}, Options(100000), "targets:net=4ms");
  f.RunAll();
  EXPECT_EQ(f.scheduler->reason(), StopReason::kTargets);
  EXPECT_LE(f.Total(), 4e-3);
  EXPECT_GT(f.Total(), 2.5e-3);
}

TEST(TaskScheduler, RestoredTrialsCountAndKeepTheirHistory) {
  const std::vector<Curve> curves(3);
  Fixture whole(curves, Options(480));
  whole.RunAll();
  Fixture half(curves, Options(240));
  half.RunAll();
  Fixture rest(curves, Options(480));
  for (int task = 0; task < 3; ++task)
    for (int64_t i = 0; i < half.scheduler->task_trials(task); ++i) rest.scheduler->Restore(task, curves[task].At(i));
  EXPECT_EQ(rest.scheduler->trials(), 240);
  rest.RunAll();
  EXPECT_EQ(rest.scheduler->trials(), 480);
  for (int task = 0; task < 3; ++task)
    EXPECT_NEAR(static_cast<double>(rest.scheduler->task_trials(task)),
                static_cast<double>(whole.scheduler->task_trials(task)), 48);
}

TEST(TaskScheduler, NothingIsLeftWhenTheHistoryHoldsAllTrials) {
  Fixture f({Curve{}}, Options(10));
  for (int i = 0; i < 10; ++i) f.scheduler->Restore(0, 1e-3);
  EXPECT_FALSE(f.scheduler->Next(100));
  EXPECT_EQ(f.scheduler->reason(), StopReason::kTrials);
}

TEST(TaskScheduler, OverlapsRoundsOfDifferentTasksAndHoldsATaskBack) {
  Fixture f({Curve{}, Curve{}}, Options(1000));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(f.Step());  // warm
  const auto one = f.scheduler->Next(16), other = f.scheduler->Next(16);
  ASSERT_TRUE(one && other);
  EXPECT_NE(one->task, other->task);
  EXPECT_FALSE(f.scheduler->Next(16));  // both have a round in flight
  EXPECT_EQ(f.scheduler->reason(), StopReason::kNone);
  EXPECT_EQ(f.scheduler->in_flight(), 32);
  for (int i = 0; i < 16; ++i) f.scheduler->Report(one->task, 1e-3);
  const auto again = f.scheduler->Next(16);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->task, one->task);
}

TEST(TaskScheduler, LostTrialsAreGivenBack) {
  Fixture f({Curve{}}, Options(10));
  ASSERT_TRUE(f.Step());
  const auto round = f.scheduler->Next(100);
  ASSERT_EQ(round->trials, 9);
  EXPECT_FALSE(f.scheduler->Next(100));
  for (int i = 0; i < 9; ++i) f.scheduler->Lost(0);
  EXPECT_EQ(f.scheduler->Next(100)->trials, 9);
}

TEST(TaskScheduler, AnExhaustedTaskGetsNoMore) {
  Fixture f({Curve{}, Curve{}}, Options(200));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(f.Step());
  const auto round = f.scheduler->Next(100);
  ASSERT_EQ(round->task, 0);
  f.scheduler->Shrink(0, round->trials, 3);
  for (int i = 0; i < 3; ++i) f.scheduler->Report(0, 1e-3);
  f.RunAll();
  EXPECT_EQ(f.scheduler->task_trials(0), 4);
  EXPECT_EQ(f.scheduler->trials(), 200);
}

TEST(TaskScheduler, ARefutedBestNoLongerCounts) {
  Fixture f({Curve{}}, Options(100));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(f.Step());
  f.scheduler->Refute(0, 7e-3);
  EXPECT_DOUBLE_EQ(f.scheduler->best(0), 7e-3);
  EXPECT_DOUBLE_EQ(f.scheduler->Value().value(), 7e-3);
  f.scheduler->Refute(0, 0);
  EXPECT_FALSE(f.scheduler->Value());
  EXPECT_TRUE(f.scheduler->Next(100));
}

TEST(TaskScheduler, ReproducesItsOrderFromTheSeed) {
  const auto run = [](uint64_t seed) {
    TaskSchedulerOptions options = Options(2000);
    options.seed = seed;
    options.epsilon = 0.3;
    Fixture f(std::vector<Curve>(5), options);
    f.RunAll();
    return f.order;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

// Two tasks of the default fusion, and two of an alternative at one choice point.
Fixture WithAnotherWay(double floor, int64_t trials) {
  TaskSchedulerOptions options;
  options.trials = trials;
  options.round_size = 10;
  options.epsilon = 0;
  return Fixture({{.weight = 1},
                  {.weight = 1},
                  {.weight = 0, .start = 5e-3, .floor = floor},
                  {.weight = 0, .start = 5e-3, .floor = floor}},
                 options, "sum", {{"net", {{{1, 1}}, {{2, 1}, {3, 1}}}}});
}

TEST(TaskScheduler, TriesOtherWaysWithinAShareOfTheTrials) {
  Fixture f = WithAnotherWay(0.4e-3, 400);
  const auto tried = [&] { return f.scheduler->task_trials(2) + f.scheduler->task_trials(3); };
  while (f.scheduler->trials() < 70) ASSERT_TRUE(f.Step());
  EXPECT_EQ(tried(), 0) << "a first round is more than an eighth of these";
  while (f.scheduler->trials() < 120) ASSERT_TRUE(f.Step());
  EXPECT_EQ(tried(), 10);
  f.RunAll();
  EXPECT_EQ(f.scheduler->trials(), 400);
  EXPECT_GE(tried(), 20);
}

TEST(TaskScheduler, AWayThatIsClearlyBehindGetsNoMoreThanItsFirstRounds) {
  Fixture f = WithAnotherWay(5e-3, 600);
  f.RunAll();
  EXPECT_EQ(f.scheduler->task_trials(2), 10);
  EXPECT_EQ(f.scheduler->task_trials(3), 10);
  EXPECT_EQ(f.scheduler->trials(), 600);
  EXPECT_EQ(f.scheduler->BestAlternatives(), std::vector<int>{0});
  EXPECT_DOUBLE_EQ(*f.scheduler->Value(), f.best[0] + f.best[1]);
}

TEST(TaskScheduler, AWayThatIsALittleBehindGetsNoMoreThanAShareOfTheTrials) {
  Fixture f = WithAnotherWay(0, 800);
  for (int task = 0; task < 4; ++task) {
    const double behind = task < 2 ? 1 : 0.55;  // two of them are of the alternative
    f.curves[task].start = behind * 1e-3;
    f.curves[task].floor = behind * 0.5e-3;
    f.curves[task].half = 400;
  }
  f.RunAll();
  EXPECT_EQ(f.scheduler->trials(), 800);
  EXPECT_EQ(f.scheduler->BestAlternatives(), std::vector<int>{0});
  const int64_t tried = f.scheduler->task_trials(2) + f.scheduler->task_trials(3);
  EXPECT_GT(tried, 20);
  EXPECT_LE(tried, 800 / 8);
}

TEST(TaskScheduler, AWayThatWinsGetsTheTrialsInsteadOfTheUsualOne) {
  Fixture f = WithAnotherWay(0.1e-3, 600);
  f.curves[1].start = f.curves[1].floor = 20e-3;
  f.RunAll();
  EXPECT_EQ(f.scheduler->BestAlternatives(), std::vector<int>{1});
  EXPECT_DOUBLE_EQ(f.scheduler->Weight(1), 0);
  EXPECT_DOUBLE_EQ(f.scheduler->Weight(2), 1);
  EXPECT_GT(f.scheduler->task_trials(2), 30);
  EXPECT_DOUBLE_EQ(*f.scheduler->Value(), f.best[0] + f.best[2] + f.best[3]);
}

}  // namespace
}  // namespace diapason
