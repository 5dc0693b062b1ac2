// Leases: what a worker is granted, and when it is told.
#include "worker/tracker/leases.h"

#include "tests/worker/tracker/parts.h"

namespace diapason::tracker {
namespace {

using LeasesTest = PartsTest;

TEST_F(LeasesTest, AWorkerGetsAsMuchAsItHasRoomFor) {
  Queue& queue = AddQueue("q");
  for (uint64_t id = 1; id <= 3; ++id) Submit(queue, id);
  Session& session = AddSession("w");
  EXPECT_EQ(Grants(session, 2).size(), 2u);
  EXPECT_EQ(session.leases.size(), 2u);
  EXPECT_EQ(session.leases.begin()->first, 100u);
  EXPECT_EQ(totals_.granted, 2u);
  EXPECT_EQ(lines_.Count(kClass), 1u);
}

TEST_F(LeasesTest, OneThatWaitsIsToldWhenThereIsWork) {
  Session& session = AddSession("w");
  v1::LeaseRequest request;
  request.set_max_wait_ms(1000);
  request.add_capacity()->set_device("cuda:0");
  request.mutable_capacity(0)->set_free(1);
  int answers = 0, grants = 0;
  leases_.Wait(session, request, [&](const absl::Status&, const v1::LeaseResponse& response) {
    ++answers;
    grants += response.grants_size();
  });
  EndTurn();
  EXPECT_EQ(answers, 0);
  Submit(AddQueue("q"), 1);
  leases_.Dispatch(kClass);
  EndTurn();
  EXPECT_EQ(answers, 1);
  EXPECT_EQ(grants, 1);
}

TEST_F(LeasesTest, AnAnswerThatWasLostComesAgain) {
  Submit(AddQueue("q"), 1);
  Session& session = AddSession("w");
  const uint64_t lease = Grants(session, 1).at(0).lease();
  session.batch = 0;  // it has not received that one
  const std::vector<v1::LeaseGrant> again = Grants(session, 1);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].lease(), lease);
}

TEST_F(LeasesTest, TheFreestDeviceIsTaken) {
  Session session;
  session.classes = {{"a", {"x"}}, {"b", {"x"}}, {"c", {"y"}}};
  session.capacity = {{"a", 1}, {"b", 2}, {"c", 3}};
  EXPECT_EQ(FreeDevice(session, "x"), "b");
  EXPECT_EQ(FreeDevice(session, "z"), std::nullopt);
}

}  // namespace
}  // namespace diapason::tracker
