// The bests of tasks: verified, and measured again.
#include "scheduler/tuning/verifications.h"

#include <functional>

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

class VerificationsTest : public RunTest {
 protected:
  // The only request that is on its way.
  Pending Sent() { return *requests_.Take(requests_.next_number() - 1); }

  // Verifies and confirms the bests of task 0 as a run does at its end; all verify. `measure`: the seconds of one
  // sample of a result. Returns which result is the best then.
  int Settle(const std::function<double(int result)>& measure) {
    for (bool goes_on = true; goes_on;) {
      EXPECT_TRUE(verifications_.Verify(0, true).ok());
      if (!requests_.empty()) {
        EXPECT_TRUE(verifications_.Verified(Sent(), FakeMeasurer::Judge(true)).ok());
      }
      const int64_t first = requests_.next_number();
      goes_on = verifications_.ConfirmBests(clock_).value();
      for (int64_t id = first; id < requests_.next_number(); ++id) {
        const Pending sent = *requests_.Take(id);
        MeasureOutcome outcome = FakeMeasurer::Time(1);
        auto& samples = std::get<Timing>(outcome.outcome).samples;
        samples.clear();
        for (int i = 0; i < sent.request.options.repeat; ++i) samples.push_back(measure(sent.result));
        EXPECT_TRUE(verifications_.Confirmed(sent, outcome).ok());
      }
    }
    return tasks_.at(0).results().Best(true);
  }
};

// One that is 2% faster than another, on a device that becomes slower or faster by 20%.
class DriftTest : public VerificationsTest, public testing::WithParamInterface<bool> {
 protected:
  DriftTest() {
    options_.confirming_samples = 5;
    options_.measure.min_repeat_ms = 0;
  }
  // Of the next sample, of which there are 40.
  double Drift() {
    const double share = sample_++ / 40.0;
    return 1 + 0.2 * (GetParam() ? share : 1 - share);
  }
  // Measures both when the device is as fast as suits the slower one. Whether the faster one is the best in the end.
  bool FasterWins() {
    const double seconds[] = {1e-3, 0.98e-3};
    int slower = -1;
    for (int i : {0, 1}) {
      sample_ = 6 * i;
      const bool is_slower = i == (GetParam() ? 0 : 1);
      const int result = Measure(0, i + 1, seconds[is_slower ? 0 : 1] * Drift());
      if (is_slower) slower = result;
    }
    EXPECT_EQ(tasks_.at(0).results().Best(false), slower);
    sample_ = 10;
    return Settle([&](int result) { return seconds[result == slower ? 0 : 1] * Drift(); }) != slower;
  }

 private:
  int sample_ = 0;
};

TEST_P(DriftTest, ContendersInTurnsShowWhichIsFaster) {
  options_.contenders = 3;
  EXPECT_TRUE(FasterWins());
  EXPECT_EQ(stages_.confirmations, 8);  // four turns of two
}

TEST_P(DriftTest, OneAfterTheOtherDoesNot) {
  options_.contenders = 1;
  EXPECT_FALSE(FasterWins());
}

INSTANTIATE_TEST_SUITE_P(, DriftTest, testing::Bool());

TEST_F(VerificationsTest, ABestIsVerifiedOnce) {
  EXPECT_TRUE(verifications_.Verify(0, true).ok());
  EXPECT_TRUE(requests_.empty());  // there is none
  Measure(0, 1, 1e-3);
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  EXPECT_TRUE(verifications_.busy());
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  EXPECT_EQ(requests_.size(), 1u);
  const Pending sent = Sent();
  EXPECT_TRUE(sent.request.verify);
  ASSERT_TRUE(verifications_.Verified(sent, FakeMeasurer::Judge(true)).ok());
  EXPECT_FALSE(verifications_.busy());
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  EXPECT_TRUE(requests_.empty());
  EXPECT_EQ(history_->ForWorkload(network_.tasks()[0].workload_key, "fake device")->at(0).verified, Verified::kOk);
}

TEST_F(VerificationsTest, AWrongOneIsMarkedAndTheNextBestIsVerified) {
  Measure(0, 1, 2e-3);
  Measure(0, 2, 1e-3);
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  ASSERT_TRUE(verifications_.Verified(Sent(), FakeMeasurer::Judge(false)).ok());
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  EXPECT_EQ(Sent().result, 0);
}

TEST_F(VerificationsTest, ItWaitsForTheRoundUnlessItIsEager) {
  Measure(0, 1, 1e-3);
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  ASSERT_TRUE(verifications_.Verified(Sent(), FakeMeasurer::Judge(true)).ok());
  Measure(0, 2, 5e-4);
  requests_.AddWaiting(0, 1);
  ASSERT_TRUE(verifications_.Verify(0, false).ok());
  EXPECT_TRUE(requests_.empty());
  for (int i = 0; i < tasks_.round_size; ++i) verifications_.CountTrial(0);
  ASSERT_TRUE(verifications_.Verify(0, false).ok());
  EXPECT_EQ(requests_.size(), 1u);
}

TEST_F(VerificationsTest, BestsAreConfirmedWithMoreSamples) {
  options_.confirming_samples = 10;
  EXPECT_FALSE(verifications_.ConfirmBests(clock_).value());
  const int best = Measure(0, 1, 1e-3);
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  ASSERT_TRUE(verifications_.Verified(Sent(), FakeMeasurer::Judge(true)).ok());
  EXPECT_TRUE(verifications_.ConfirmBests(clock_).value());
  const Pending sent = Sent();
  EXPECT_TRUE(sent.confirms);
  EXPECT_EQ(sent.request.options.repeat, 10);
  ASSERT_TRUE(verifications_.Confirmed(sent, FakeMeasurer::Time(4e-3)).ok());
  EXPECT_GT(tasks_.at(0).results()[best].samples, 10);
  EXPECT_FALSE(verifications_.ConfirmBests(clock_).value());
}

TEST_F(VerificationsTest, AContenderThatFailsKeepsItsTime) {
  options_.confirming_samples = 5;
  options_.contenders = 2;
  options_.measure.min_repeat_ms = 0;
  const int best = Measure(0, 1, 1e-3), other = Measure(0, 2, 1.01e-3);
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  ASSERT_TRUE(verifications_.Verified(Sent(), FakeMeasurer::Judge(true)).ok());
  ASSERT_TRUE(verifications_.ConfirmBests(clock_).value());
  const auto end = requests_.next_number();
  for (int64_t id = end - 8; id < end; ++id) {
    const Pending sent = *requests_.Take(id);
    EXPECT_TRUE(verifications_.busy());
    const MeasureOutcome outcome =
        sent.result == best ? FakeMeasurer::Time(2e-3) : FakeMeasurer::Error(ErrorKind::kRunTimeout, "slow");
    ASSERT_TRUE(verifications_.Confirmed(sent, outcome).ok());
  }
  EXPECT_FALSE(verifications_.busy());
  EXPECT_GT(tasks_.at(0).results()[best].seconds, 1.9e-3);
  EXPECT_EQ(tasks_.at(0).results()[other].seconds, 1.01e-3);
  EXPECT_EQ(tasks_.at(0).results().Best(false), other);
}

TEST_F(VerificationsTest, TurnsThatTakeMoreThanATenthOfTheRunAreNotBegun) {
  options_.confirming_samples = 5;
  options_.contenders = 2;
  options_.measure.min_repeat_ms = 100;
  Measure(0, 1, 1e-3);
  Measure(0, 2, 1.01e-3);
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  ASSERT_TRUE(verifications_.Verified(Sent(), FakeMeasurer::Judge(true)).ok());
  clock_.Start();
  // Eight measurements of three samples.
  options_.seconds = 23;
  EXPECT_NEAR(verifications_.Reserve(clock_), 0.5, 1e-9);
  options_.seconds = 25;
  EXPECT_NEAR(verifications_.Reserve(clock_), 2.4, 1e-9);
  clock_now_.Advance(23);  // two seconds are left
  ASSERT_TRUE(verifications_.ConfirmBests(clock_).value());
  EXPECT_EQ(requests_.size(), 1u);
}

TEST_F(VerificationsTest, TheReserveIsForWhatIsNotVerified) {
  clock_.CountTrial(2);
  EXPECT_EQ(verifications_.Reserve(clock_), 0);
  Measure(0, 1, 1e-3);
  Measure(1, 1, 1e-3);
  EXPECT_DOUBLE_EQ(verifications_.Reserve(clock_), 4);
}

}  // namespace
}  // namespace diapason::tuning
