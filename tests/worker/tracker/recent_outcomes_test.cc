// Outcomes of the last moments: who gets them, and for how long.
#include "worker/tracker/recent_outcomes.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

class RecentOutcomesTest : public PartsTest {
 protected:
  RecentOutcomesTest() { groups_.Join(measured_); }
  RequestPtr Asks(const std::string& queue) {
    RequestPtr request = AddRequest(AddQueue(queue), 1);
    groups_.Join(request);
    return request;
  }
  const RequestPtr measured_ = AddRequest(AddQueue("a"), 1);
};

TEST_F(RecentOutcomesTest, AnotherQueueHasItOnce) {
  recent_.Keep(*measured_, "w", Timed(2e-3), 0);
  const RequestPtr other = Asks("b");
  EXPECT_EQ(recent_.Take(*measured_), nullptr);  // it has had it
  ASSERT_NE(recent_.Take(*other), nullptr);
  EXPECT_EQ(recent_.Take(*other), nullptr);
  const RequestPtr third = Asks("c");
  recent_.NoteHad(*third);
  EXPECT_EQ(recent_.Take(*third), nullptr);
}

TEST_F(RecentOutcomesTest, ItIsKeptForAWhile) {
  recent_.Keep(*measured_, "w", Timed(), 0);
  now_ += options_.share_recent;
  EXPECT_EQ(recent_.Take(*Asks("b")), nullptr);
  recent_.Forget(now_);
  recent_.Keep(*measured_, "w", Timed(), 0);
  EXPECT_NE(recent_.Take(*Asks("c")), nullptr);
}

TEST_F(RecentOutcomesTest, AWorkerThatIsNotTrustedIsNotQuoted) {
  recent_.Keep(*measured_, "w", Timed(), 0);
  recent_.Distrust("w");
  EXPECT_EQ(recent_.Take(*Asks("b")), nullptr);
}

TEST_F(RecentOutcomesTest, OneThatWasStoppedEarlySpeaksForFasterOnesAlone) {
  v1::MeasureResult stopped = Timed();
  stopped.mutable_timing()->set_stopped_early(true);
  Request request;
  EXPECT_FALSE(SpeaksFor(request, stopped, 1e-3));
  request.message.set_best_seconds(5e-4);
  EXPECT_TRUE(SpeaksFor(request, stopped, 1e-3));
  request.message.set_best_seconds(2e-3);
  EXPECT_FALSE(SpeaksFor(request, stopped, 1e-3));
  EXPECT_TRUE(SpeaksFor(request, Timed(), 1e-3));
}

}  // namespace
}  // namespace diapason::tracker
