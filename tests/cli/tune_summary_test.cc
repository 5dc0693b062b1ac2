#include "cli/tune_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TuneReport ReportOf(int tasks, int timed) {
  TuneReport report;
  for (int i = 0; i < tasks; ++i) {
    TaskReport task;
    task.id = i;
    if (i < timed) task.best_us = 10;
    task.trials = i < timed ? 4 : 0;
    report.trials += task.trials;
    report.tasks.push_back(task);
  }
  return report;
}

TuneSpec For(double seconds, int64_t trials) {
  TuneSpec spec;
  spec.seconds = seconds;
  spec.trials = trials;
  return spec;
}

TEST(TuneDoubts, AskForMoreTimeWhereTasksWereNotTimed) {
  EXPECT_THAT(
      TuneDoubts(ReportOf(30, 20), For(40, 0), 0),
      ElementsAre(
          "10 of 30 tasks were not timed, and a build uses their fallback schedules: use --seconds 80 or more"));
  EXPECT_THAT(
      TuneDoubts(ReportOf(30, 29), For(40, 0), 0),
      ElementsAre("1 of 30 tasks was not timed, and a build uses its fallback schedule: use --seconds 50 or more"));
  EXPECT_THAT(
      TuneDoubts(ReportOf(4, 2), For(0, 8), 0),
      ElementsAre("2 of 4 tasks were not timed, and a build uses their fallback schedules: use --trials 20 or more"));
  EXPECT_THAT(TuneDoubts(ReportOf(30, 30), For(40, 0), 0), IsEmpty());
}

TEST(TuneDoubts, LeaveOutWhatDoesNotCountAndTellOfWhatFails) {
  TuneReport report = ReportOf(3, 1);
  report.tasks[1].selected = false;
  report.tasks[2].trials = 8;
  EXPECT_THAT(TuneDoubts(report, For(40, 0), 0),
              ElementsAre("all trials of 1 of 2 tasks failed; `diapason history info` counts the errors"));
  report.tasks[2].weight = 0;
  EXPECT_THAT(TuneDoubts(report, For(40, 0), 0), IsEmpty());
}

TEST(TuneDoubts, TellOfABusyMachine) {
  EXPECT_THAT(TuneDoubts(ReportOf(1, 1), For(40, 0), 0.34),
              ElementsAre("the machine was busy: the timings of a typical trial spread by 34%; end other programs and "
                          "tune again, or measure longer with "
                          "--min-repeat-ms"));
  EXPECT_THAT(TuneDoubts(ReportOf(1, 1), For(40, 0), 0.2), IsEmpty());
}

TEST(SpreadMeter, KnowsTheMedianSpreadOfWholeMeasurements) {
  SpreadMeter meter;
  Timing timing;
  for (const double most : {1.1, 1.2, 1.3, 1.4}) {
    timing.samples = {1, 1, most};
    meter.Add(timing);
  }
  EXPECT_EQ(meter.Typical(), 0) << "too few to tell";
  timing.samples = {1, 1, 9};
  timing.stopped_early = true;
  meter.Add(timing);
  timing.stopped_early = false;
  timing.samples = {1};
  meter.Add(timing);
  EXPECT_EQ(meter.Typical(), 0) << "these tell nothing";
  timing.samples = {1, 1, 5};
  meter.Add(timing);
  EXPECT_NEAR(meter.Typical(), 0.3, 1e-12);
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
