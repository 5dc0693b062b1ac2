// The time of a run, and its pace.
#include "scheduler/tuning/run_clock.h"

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using RunClockTest = RunTest;

TEST_F(RunClockTest, TheReserveIsAtMostHalfOfTheTime) {
  options_.seconds = 100;
  clock_.Start();
  clock_now_.Advance(60);
  EXPECT_FALSE(clock_.OutOfTime(30));
  EXPECT_TRUE(clock_.OutOfTime(1000));
  clock_now_.Advance(10);
  EXPECT_TRUE(clock_.OutOfTime(30));
  options_.seconds = 0;  // no limit
  EXPECT_FALSE(clock_.OutOfTime(30));
}

TEST_F(RunClockTest, ItsPaceIsTheTimeBetweenOutcomes) {
  clock_.Start();
  clock_now_.Advance(6);
  const double each = clock_.TakeOutcomes(3);
  EXPECT_DOUBLE_EQ(each, 2);
  clock_.CountTrial(each);
  EXPECT_DOUBLE_EQ(clock_.verification_seconds(), 2);  // as a trial's, for now
  clock_.CountVerification(5);
  EXPECT_DOUBLE_EQ(clock_.verification_seconds(), 5);
  EXPECT_DOUBLE_EQ(clock_.trial_seconds(), 2);
  EXPECT_DOUBLE_EQ(clock_.Seconds(), 6);
}

TEST_F(RunClockTest, NothingStallsWhileNothingIsDue) {
  clock_.Start();
  clock_now_.Advance(options_.stall_s + 1);
  EXPECT_TRUE(clock_.Stalled());
  clock_.Rest();
  EXPECT_FALSE(clock_.Stalled());
}

}  // namespace
}  // namespace diapason::tuning
