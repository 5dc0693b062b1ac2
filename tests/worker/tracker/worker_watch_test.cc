// What workers do with their leases: outcomes, deadlines, quarantines.
#include "worker/tracker/worker_watch.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

class WorkerWatchTest : public PartsTest {
 protected:
  WorkerWatchTest() {
    Submit(queue_, 1);
    lease_ = Grants(worker_, 1).at(0).lease();
  }
  void Report(const v1::MeasureResult& result) {
    v1::LeaseOutcome outcome;
    outcome.set_lease(lease_);
    *outcome.mutable_result() = result;
    watch_.TakeOutcome(worker_, outcome);
  }
  Queue& queue_ = AddQueue("q");
  Session& worker_ = AddSession("w");
  uint64_t lease_ = 0;
};

TEST_F(WorkerWatchTest, AnOutcomeCountsOnce) {
  Report(Timed());
  Report(Timed(5));
  ASSERT_EQ(queue_.results.size(), 1u);
  EXPECT_EQ(queue_.results[0].timing().samples(0), 1e-3);
  EXPECT_EQ(worker_.status.done(), 1u);
}

TEST_F(WorkerWatchTest, OneThatCannotBeMeansQuarantine) {
  Report(Timed(-1));
  EXPECT_EQ(totals_.bad_outcomes, 1u);
  EXPECT_TRUE(queue_.results.empty());
  ASSERT_TRUE(worker_.quarantined_until.has_value());
  EXPECT_EQ(workers_.Serving(kClass), 0u);
  EXPECT_EQ(lines_.Count(kClass), 1u);
  watch_.EndQuarantines(*worker_.quarantined_until);
  EXPECT_FALSE(worker_.quarantined_until.has_value());
  EXPECT_EQ(workers_.Serving(kClass), 1u);
}

TEST_F(WorkerWatchTest, ALeaseThatIsNotRenewedIsTakenBack) {
  watch_.ExpireLeases(worker_, now_);
  EXPECT_EQ(worker_.leases.size(), 1u);
  watch_.ExpireLeases(worker_, now_ + options_.lease);
  EXPECT_TRUE(worker_.leases.empty());
  EXPECT_EQ(totals_.expired, 1u);
  EXPECT_EQ(lines_.Count(kClass), 1u);
  EXPECT_FALSE(worker_.quarantined_until.has_value());
}

TEST_F(WorkerWatchTest, OneThatIsKeptPastItsLastMomentMeansQuarantine) {
  watch_.ExpireLeases(worker_, worker_.leases.at(lease_).last);
  EXPECT_TRUE(worker_.quarantined_until.has_value());
}

TEST_F(WorkerWatchTest, ASessionThatEndsGivesItsLeasesBack) {
  watch_.EndSession("w", "the worker left", /*counts=*/false);
  EXPECT_EQ(workers_.Find("w"), nullptr);
  EXPECT_EQ(lines_.Count(kClass), 1u);
  EXPECT_EQ(queue_.unfinished.at(1)->attempts, 0u);
}

}  // namespace
}  // namespace diapason::tracker
