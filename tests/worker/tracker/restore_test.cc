// A tracker goes on from what an earlier one has stored.
#include "worker/tracker/restore.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

using RestoreTest = PartsTest;

TEST_F(RestoreTest, WhatIsStoredOfATrackerMakesTheSameOne) {
  TrackerState state;
  {
    Queue& queue = AddQueue("q");
    for (uint64_t id = 1; id <= 3; ++id) Submit(queue, id, "s" + std::to_string(id));
    Session& worker = AddSession("w");
    Grants(worker, 2);
    const RequestPtr done = queue.unfinished.at(1);
    leases_.Erase(worker, done->lease);
    trials_.Finish(done, Timed());
    state = Snapshot(queues_.queues(), workers_.sessions());
    watch_.EndSession("w", "it is for the next one", /*counts=*/false);
    while (!queue.unfinished.empty()) trials_.Cancel(queue.unfinished.begin()->second, "as well");
    queues_.Erase("q");
  }
  Restore(state, {journal_, queues_, workers_, leases_, trials_});
  const Queue& queue = *queues_.Find("q");
  EXPECT_EQ(queue.results.size(), 1u);
  EXPECT_EQ(queue.unfinished.size(), 2u);
  EXPECT_EQ(lines_.Count(kClass), 1u);
  const Session& worker = *workers_.Find("w");
  ASSERT_EQ(worker.leases.size(), 1u);
  EXPECT_EQ(worker.leases.begin()->second.request, queue.unfinished.at(2));
  EXPECT_EQ(queue.unfinished.at(2)->attempts, 1u);
}

TEST_F(RestoreTest, ALeaseOfAQueueThatIsGoneIsLeftOut) {
  TrackerState state;
  state.leases.push_back({500, "w", "cuda:0", 1, "q", 1, 0});
  Restore(state, {journal_, queues_, workers_, leases_, trials_});
  Submit(AddQueue("q"), 1);
  EXPECT_EQ(Grants(AddSession("w"), 1).at(0).lease(), 501u);  // but its number is not used again
}

}  // namespace
}  // namespace diapason::tracker
