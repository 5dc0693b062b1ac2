// Requests on their way.
#include "scheduler/tuning/requests.h"

#include "tests/scheduler/tuning/run.h"

namespace diapason::tuning {
namespace {

using RequestsTest = RunTest;

TEST_F(RequestsTest, AnOutcomeFindsItsRequestOnce) {
  std::vector<Pending> pending(2);
  pending[1].task = 1;
  ASSERT_TRUE(requests_.Submit(std::move(pending)).ok());
  EXPECT_EQ(requests_.next_number(), 3);
  EXPECT_EQ(requests_.Take(2)->task, 1);
  EXPECT_FALSE(requests_.Take(2).has_value());
  EXPECT_EQ(requests_.Take(1)->order, 1);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(RequestsTest, VerificationsAreGivenUpAndTrialsAreNot) {
  std::vector<Pending> pending(2);
  pending[1].task = 1;
  pending[1].result = 0;
  ASSERT_TRUE(requests_.Submit(std::move(pending)).ok());
  EXPECT_EQ(requests_.GiveUpVerifications(), std::vector<int>{1});
  EXPECT_EQ(requests_.size(), 1u);
}

TEST_F(RequestsTest, ABrokenMeasurerIsTold) {
  measurer_.Break(absl::UnavailableError("no worker"));
  EXPECT_EQ(requests_.Submit(std::vector<Pending>(1)), absl::UnavailableError("no worker"));
  EXPECT_EQ(requests_.Submit({}), absl::OkStatus());
}

TEST_F(RequestsTest, WaitingTrialsAreCountedByTask) {
  requests_.AddWaiting(0, 3);
  requests_.AddWaiting(1, 2);
  requests_.AddWaiting(0, -1);
  EXPECT_EQ(requests_.waiting(0), 2);
  EXPECT_EQ(requests_.waiting(), 4);
}

}  // namespace
}  // namespace diapason::tuning
