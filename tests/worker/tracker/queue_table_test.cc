// Queues of coordinators: quotas, results and their acknowledgement.
#include "worker/tracker/queue_table.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

using QueueTableTest = PartsTest;

TEST_F(QueueTableTest, AnOwnerHasNoMoreThanItsQuota) {
  options_.max_queues_per_token = 1;
  options_.max_pending_per_token = 2;
  v1::OpenRequest open;
  open.set_owner("ann");
  Queue& queue = queues_.Add("q", open);
  EXPECT_EQ(queues_.CheckOpen("ann").message(), "the token of 'ann' has 1 queues and may open no more; close some");
  EXPECT_TRUE(queues_.CheckOpen("bob").ok());
  AddRequest(queue, 1);
  EXPECT_TRUE(queues_.CheckRoom(queue, 1, 10).ok());
  EXPECT_EQ(queues_.CheckRoom(queue, 2, 10).message(), "the queues of the token of 'ann' hold 1 requests and take 2");
  queues_.Deliver(queue.unfinished.at(1), Timed());
  queues_.Erase("q");
  EXPECT_TRUE(queues_.CheckOpen("ann").ok());
  EXPECT_EQ(queues_.Find("q"), nullptr);
}

TEST_F(QueueTableTest, ResultsComeAgainUntilTheyAreAcknowledged) {
  Queue& queue = AddQueue("q");
  for (uint64_t id : {1, 2}) queues_.Deliver(AddRequest(queue, id), Timed());
  std::vector<uint64_t> sequences;
  const auto next = [&](uint64_t acknowledged, uint64_t incarnation) {
    v1::NextRequest request;
    request.set_acknowledged(acknowledged);
    request.set_incarnation(incarnation);
    sequences.clear();
    queues_.Wait(queue, request, [&](const absl::Status&, const v1::NextResponse& response) {
      for (const v1::MeasureResult& result : response.results()) sequences.push_back(result.sequence());
    });
    EndTurn();
  };
  next(0, 7);
  EXPECT_EQ(sequences, (std::vector<uint64_t>{1, 2}));
  next(1, /*incarnation=*/6);  // an earlier tracker gave that one
  EXPECT_EQ(sequences, (std::vector<uint64_t>{1, 2}));
  next(1, 7);
  EXPECT_EQ(sequences, (std::vector<uint64_t>{2}));
  queues_.Acknowledge(queue, 2);
  EXPECT_EQ(queues_.stored_bytes(), 0u);
}

TEST_F(QueueTableTest, ARequestIsLookedAt) {
  v1::MeasureRequest request;
  request.set_id(3);
  EXPECT_EQ(queues_.CheckRequest(request).message(), "measurement request 3 has no workload");
}

}  // namespace
}  // namespace diapason::tracker
