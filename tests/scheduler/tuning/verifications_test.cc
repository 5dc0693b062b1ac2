// The bests of tasks: verified, and measured again.
#include "scheduler/tuning/verifications.h"

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

class VerificationsTest : public RunTest {
 protected:
  // The only request that is on its way.
  Pending Sent() { return *requests_.Take(requests_.next_number() - 1); }
};

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
  EXPECT_FALSE(verifications_.ConfirmBests().value());
  const int best = Measure(0, 1, 1e-3);
  ASSERT_TRUE(verifications_.Verify(0, true).ok());
  ASSERT_TRUE(verifications_.Verified(Sent(), FakeMeasurer::Judge(true)).ok());
  EXPECT_TRUE(verifications_.ConfirmBests().value());
  const Pending sent = Sent();
  EXPECT_TRUE(sent.confirms);
  EXPECT_EQ(sent.request.options.repeat, 10);
  ASSERT_TRUE(verifications_.Confirmed(sent, FakeMeasurer::Time(4e-3)).ok());
  EXPECT_GT(tasks_.at(0).results()[best].samples, 10);
  EXPECT_FALSE(verifications_.ConfirmBests().value());
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
