#include "cli/tune_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Of a run without a limit of time where there are no `seconds`.
api::TuneResult ResultOf(int tasks, int timed, double seconds = 40) {
  api::TuneResult result;
  api::Progress& progress = result.progress;
  if (seconds > 0) progress.time_limit_s = seconds;
  for (int i = 0; i < tasks; ++i) {
    api::TaskProgress task;
    task.id = i + 1;
    if (i < timed) task.best_us = 10;
    task.trials = i < timed ? 4 : 0;
    progress.trials += task.trials;
    progress.tasks.push_back(task);
  }
  return result;
}

TEST(TuneDoubts, AskForMoreTimeWhereTasksWereNotTimed) {
  EXPECT_THAT(
      TuneDoubts(ResultOf(30, 20), "cpu"),
      ElementsAre(
          "10 of 30 tasks were not timed, and a build uses their fallback schedules: use --seconds 80 or more"));
  EXPECT_THAT(
      TuneDoubts(ResultOf(30, 29), "cpu"),
      ElementsAre("1 of 30 tasks was not timed, and a build uses its fallback schedule: use --seconds 50 or more"));
  EXPECT_THAT(
      TuneDoubts(ResultOf(4, 2, 0), "cpu"),
      ElementsAre("2 of 4 tasks were not timed, and a build uses their fallback schedules: use --trials 20 or more"));
  EXPECT_THAT(TuneDoubts(ResultOf(30, 30), "cpu"), IsEmpty());
}

TEST(TuneDoubts, LeaveOutWhatDoesNotCountAndTellOfWhatFails) {
  api::TuneResult result = ResultOf(3, 1);
  result.progress.tasks[1].tuned = false;
  result.progress.tasks[2].trials = 8;
  EXPECT_THAT(TuneDoubts(result, "cpu"),
              ElementsAre("all trials of 1 of 2 tasks failed; `diapason history info` counts the errors"));
  result.progress.tasks[2].count = 0;
  EXPECT_THAT(TuneDoubts(result, "cpu"), IsEmpty());
}

TEST(TuneDoubts, TellOfANetworkThatTakesMuchLongerThanItsTasks) {
  api::TuneResult result = ResultOf(1, 1);
  result.progress.tasks_us = 10500;
  result.checks.resize(1);
  result.checks[0].latency_us = 14200;
  EXPECT_THAT(TuneDoubts(result, "cpu"),
              ElementsAre("the network takes 1.35 times as long as its tasks together: the machine "
                          "was probably faster when these were timed; end other programs and tune "
                          "again"));
  EXPECT_THAT(TuneDoubts(result, "cpu -caches=warm"), IsEmpty()) << "its constants come from memory";
  EXPECT_EQ(TuneDoubts(result, "cpu -caches=network").size(), 1u);
  result.checks[0].wrong_records.emplace_back();
  EXPECT_THAT(TuneDoubts(result, "cpu"), IsEmpty()) << "the tasks' times are those of records that were replaced";
  result.checks[0].wrong_records.clear();
  result.checks[0].latency_us = 13000;
  EXPECT_THAT(TuneDoubts(result, "cpu"), IsEmpty());
}

TEST(TuneDoubts, TellOfABusyMachine) {
  api::TuneResult result = ResultOf(1, 1);
  result.spread = 0.34;
  EXPECT_THAT(TuneDoubts(result, "cpu"),
              ElementsAre("the machine was busy: the timings of a typical trial spread by 34%; end other programs and "
                          "tune again, or measure longer with "
                          "--min-repeat-ms"));
  result.spread = 0.2;
  EXPECT_THAT(TuneDoubts(result, "cpu"), IsEmpty());
}

TEST(BuildCommand, HasWhatWasTuned) {
  TuneFlags flags;
  flags.model.model = "my model.onnx";
  flags.target = "cuda -arch=sm_90";
  flags.history = "h.db";
  EXPECT_EQ(BuildCommand(flags),
            "diapason build 'my model.onnx' --target 'cuda -arch=sm_90' --history h.db --out package");
  flags.model.model = "resnet-18";
  flags.model.batch = 4;
  flags.model.dtype = "float16";
  flags.model.dims = {"seq=16..128"};
  flags.model.extra = {{"image", "64"}};
  EXPECT_EQ(
      BuildCommand(flags),
      "diapason build resnet-18 --batch 4 --dtype float16 --dim seq=16..128 --set image=64 --target 'cuda -arch=sm_90' "
      "--history h.db --out package");
}

}  // namespace
}  // namespace diapason
