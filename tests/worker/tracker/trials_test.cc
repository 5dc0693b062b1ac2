// How measurements end: delivered, shared, tried again or cancelled.
#include "worker/tracker/trials.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

class TrialsTest : public PartsTest {
 protected:
  RequestPtr Leased(Queue& queue, uint64_t id) {
    RequestPtr request = Submit(queue, id);
    Grants(worker_, 1);
    return request;
  }
  // The worker has answered it.
  RequestPtr Answered(Queue& queue, uint64_t id) {
    RequestPtr request = Leased(queue, id);
    leases_.Erase(worker_, request->lease);
    return request;
  }
  Session& worker_ = AddSession("w");
};

TEST_F(TrialsTest, TheOutcomeIsForAllThatAskedForTheSame) {
  Queue &a = AddQueue("a"), &b = AddQueue("b"), &late = AddQueue("late");
  const RequestPtr request = Answered(a, 1);
  Submit(b, 5);
  trials_.Finish(request, Timed());
  ASSERT_EQ(a.results.size(), 1u);
  ASSERT_EQ(b.results.size(), 1u);
  EXPECT_EQ(b.results[0].id(), 5u);
  EXPECT_FALSE(trials_.Begin(AddRequest(late, 6)));
  ASSERT_EQ(late.results.size(), 1u);
  EXPECT_EQ(totals_.shared, 2u);
  EXPECT_EQ(totals_.outcomes.at("timing"), 1u);
}

TEST_F(TrialsTest, OneIsTriedAgainUntilNoAttemptIsLeft) {
  Queue& queue = AddQueue("a");
  const RequestPtr request = Answered(queue, 1);
  const v1::MeasureResult lost = InfrastructureResult(MeasureStage::kRun, "lost");
  trials_.Retry(request, lost);
  EXPECT_TRUE(queue.results.empty());
  EXPECT_EQ(lines_.Count(kClass), 1u);
  Grants(worker_, 1);
  leases_.Erase(worker_, request->lease);
  trials_.Retry(request, lost);
  ASSERT_EQ(queue.results.size(), 1u);
  EXPECT_EQ(queue.results[0].attempts(), 2u);
}

TEST_F(TrialsTest, WhatIsGivenBackWasNoAttempt) {
  Queue& queue = AddQueue("a");
  const RequestPtr request = Answered(queue, 1);
  trials_.GiveBack(request);
  EXPECT_EQ(request->attempts, 0u);
  EXPECT_EQ(lines_.Count(kClass), 1u);
}

TEST_F(TrialsTest, ACancelledOneIsRevokedOrHasAnHeir) {
  Queue &a = AddQueue("a"), &b = AddQueue("b");
  const RequestPtr first = Leased(a, 1);
  const RequestPtr heir = Submit(b, 2);
  const uint64_t lease = first->lease;
  trials_.Cancel(first, "done with it");
  EXPECT_EQ(a.results.at(0).cancelled().reason(), "done with it");
  EXPECT_EQ(worker_.leases.at(lease).request, heir);
  trials_.Cancel(heir, "done with it, too");
  EXPECT_TRUE(worker_.leases.empty());
  EXPECT_EQ(worker_.revoked, std::vector<uint64_t>{lease});
}

}  // namespace
}  // namespace diapason::tracker
