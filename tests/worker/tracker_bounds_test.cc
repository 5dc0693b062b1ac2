// What a tracker holds for others has bounds, whoever is slow or greedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/tracker_fixture.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

// A tuner that submits and never fetches: its results count as its requests do.
TEST_F(TrackerTest, ATunerThatFetchesNothingIsToldToWait) {
  options_.max_stored_bytes = 100000;
  options_.max_pending = 1000000;
  Restart();
  const std::string slow = Open(), other = Open(), a = Register("a");
  v1::MeasureResult large = Timed();
  large.set_compiler(std::string(3000, 'x'));
  uint64_t id = 0;
  absl::Status status;
  while (status.ok() && id < 1000) {
    status = SubmitIds(slow, {++id});
    if (status.ok()) Report(a, {{Grants(a, 1).at(0).lease(), large}});
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the tracker holds 10"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(" bytes of requests and results and takes 100000"));
  EXPECT_LE(id, 100000u / 3000 + 2);
  EXPECT_TRUE(absl::IsResourceExhausted(SubmitIds(other, {1})));
  // Once it has fetched there is room again, and nothing was lost.
  EXPECT_EQ(Results(slow).size(), id - 1);
  Results(slow, id - 1);
  EXPECT_TRUE(SubmitIds(slow, {id}).ok());
  EXPECT_TRUE(SubmitIds(other, {1}).ok());
}

TEST_F(TrackerTest, TunersAndWorkersHaveABound) {
  options_.max_queues = 2;
  options_.max_workers = 2;
  Restart();
  Open();
  const std::string second = Open();
  v1::OpenRequest open;
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse opened;
  EXPECT_EQ(tracker_->Open(open, opened), absl::ResourceExhaustedError("the tracker has 2 queues and takes no more"));
  v1::CloseRequest close;
  close.set_queue(second);
  v1::CloseResponse closed;
  ASSERT_TRUE(tracker_->Close(close, closed).ok());
  EXPECT_TRUE(tracker_->Open(open, opened).ok());

  Register("a");
  Register("b");
  v1::RegisterResponse registered;
  EXPECT_EQ(tracker_->Register(Worker("c"), registered),
            absl::ResourceExhaustedError("the tracker has 2 workers and takes no more"));
  Register("b");  // in place of the one before
}

}  // namespace
}  // namespace diapason
