#include "worker/agent/leases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace diapason {
namespace {

using ::testing::ElementsAre;

v1::MeasureResult ResultOfTrial(uint64_t id) {
  v1::MeasureResult result;
  result.set_id(id);
  return result;
}

TEST(AgentLeases, AFinishedLeaseBecomesAnOutcomeOnce) {
  AgentLeases leases;
  EXPECT_TRUE(leases.Add(7, {.device = 1, .leased_at = 123, .job = "job", .trial = 5}));
  EXPECT_FALSE(leases.Add(7, {})) << "received twice";
  EXPECT_TRUE(leases.SetHandle(7, 70));
  EXPECT_EQ(leases.HeldOn(1), 1);
  EXPECT_EQ(leases.HeldOn(0), 0);
  const auto held = leases.Finish(7, "worker", ResultOfTrial(5));
  ASSERT_TRUE(held);
  EXPECT_EQ(held->handle, 70u);
  EXPECT_EQ(held->job, "job");
  EXPECT_EQ(leases.held(), 0u);
  EXPECT_FALSE(leases.idle()) << "not reported";
  EXPECT_FALSE(leases.Finish(7, "worker", ResultOfTrial(5)));
  v1::ReportRequest request;
  leases.AddTo(request);
  ASSERT_EQ(request.outcomes_size(), 1);
  EXPECT_EQ(request.outcomes(0).lease(), 7u);
  EXPECT_EQ(request.outcomes(0).result().times().leased_at(), 123);
  leases.NoteReported(1);
  EXPECT_TRUE(leases.idle());
}

TEST(AgentLeases, WhatIsOverIsNotReported) {
  AgentLeases leases;
  HeldLease held;
  held.handle = 70;
  leases.Add(7, held);
  EXPECT_EQ(leases.Remove(7)->handle, 70u);
  EXPECT_FALSE(leases.Remove(7));
  EXPECT_FALSE(leases.SetHandle(7, 71));
  EXPECT_FALSE(leases.Finish(7, "worker", ResultOfTrial(1)));
  EXPECT_TRUE(leases.idle());
}

TEST(AgentLeases, AReportHasTheOldestOutcomesAndRenewsWhatIsHeld) {
  AgentLeases leases;
  for (uint64_t lease = 1; lease <= 130; ++lease) {
    leases.Add(lease, {});
    leases.Finish(lease, "worker", ResultOfTrial(lease));
  }
  leases.Add(201, {});
  leases.Add(200, {});
  EXPECT_THAT(leases.all(), ElementsAre(200, 201));
  v1::ReportRequest request;
  leases.AddTo(request);
  EXPECT_EQ(request.outcomes_size(), 128);
  EXPECT_EQ(request.outcomes(0).lease(), 1u);
  EXPECT_THAT(request.renew(), ElementsAre(200, 201));
  // One more comes while the report is under way.
  leases.Finish(200, "worker", ResultOfTrial(200));
  leases.NoteReported(128);
  v1::ReportRequest next;
  leases.AddTo(next);
  ASSERT_EQ(next.outcomes_size(), 3);
  EXPECT_EQ(next.outcomes(0).lease(), 129u);
  EXPECT_EQ(next.outcomes(2).lease(), 200u);
  leases.ForgetOutcomes();
  EXPECT_FALSE(leases.has_outcomes());
  EXPECT_EQ(leases.held(), 1u);
}

TEST(AgentLeases, AResultNamesTheWorkerWhereItNamesADevice) {
  AgentLeases leases;
  leases.Add(1, {});
  v1::MeasureResult result = ResultOfTrial(1);
  result.mutable_on();
  leases.Finish(1, "worker", result);
  v1::ReportRequest request;
  leases.AddTo(request);
  EXPECT_EQ(request.outcomes(0).result().on().worker(), "worker");
}

}  // namespace
}  // namespace diapason
