// What a run tells of itself.
#include "scheduler/tuning/reporter.h"

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using ReporterTest = RunTest;

TEST_F(ReporterTest, TheEstimateIsThereWhenAllTasksAreTimed) {
  clock_.Start();
  Measure(0, 1, 1e-3);
  EXPECT_FALSE(reporter_.Report().estimated_us.has_value());
  Measure(1, 1, 2e-3);
  requests_.AddWaiting(1, 4);
  clock_now_.Advance(4);
  const TuneReport report = reporter_.Report();
  EXPECT_DOUBLE_EQ(report.estimated_us.value(), 1e6 * (1e-3 + 3 * 2e-3));
  EXPECT_EQ(report.trials, 2);
  EXPECT_EQ(report.measured, 2);
  EXPECT_EQ(report.tasks[1].in_flight, 4);
  EXPECT_DOUBLE_EQ(report.trials_per_s, 0.5);
  EXPECT_DOUBLE_EQ(report.seconds_left.value(), 98 / 0.5);
}

TEST_F(ReporterTest, WithoutAMeasuredNetworkTheSumIsNotCorrected) {
  EXPECT_TRUE(reporter_.ReadCorrection().ok());
  options_.latency_network = "net";
  EXPECT_TRUE(reporter_.ReadCorrection().ok());
  Measure(0, 1, 1e-3);
  Measure(1, 1, 1e-3);
  EXPECT_DOUBLE_EQ(reporter_.Report().estimated_us.value(), 4e3);
}

}  // namespace
}  // namespace diapason::tuning
