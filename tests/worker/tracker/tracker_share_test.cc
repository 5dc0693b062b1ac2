// Two tuners, one measurement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/worker/testing.h"
#include "tests/worker/tracker/tracker_fixture.h"
#include "worker/process/convert.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TrackerShareTest : public TrackerTest {
 protected:
  TrackerShareTest() {
    options_.share_recent = {};
    Restart();
  }
  static v1::MeasureRequest Same(uint64_t id) {
    v1::MeasureRequest request;
    request.set_id(id);
    request.set_workload("w");
    request.set_schedule("s");
    request.set_target("cuda -arch=sm_90");
    request.mutable_timing()->set_repeat(3);
    request.mutable_timing()->set_race(true);
    return request;
  }
  void Cancel(const std::string& queue) {
    v1::CancelRequest cancel;
    cancel.set_queue(queue);
    cancel.set_all(true);
    v1::CancelResponse cancelled;
    ASSERT_TRUE(tracker_->Cancel(cancel, cancelled).ok());
  }
};

TEST_F(TrackerShareTest, ACandidateInFlightIsWaitedFor) {
  const std::string a = Open(), b = Open(), worker = Register("worker");
  ASSERT_TRUE(Submit(a, {Same(1)}).ok());
  const auto grants = Grants(worker, 4);
  ASSERT_EQ(grants.size(), 1u);
  ASSERT_TRUE(Submit(b, {Same(77)}).ok());
  EXPECT_THAT(Grants(worker, 4), IsEmpty());
  EXPECT_EQ(Fleet().queues(1).leased(), 1u);
  EXPECT_EQ(Fleet().queues(1).pending(), 0u);
  Report(worker, {{grants[0].lease(), Timed(0.5)}});
  ASSERT_EQ(Results(a).size(), 1u);
  ASSERT_EQ(Results(b).size(), 1u);
  EXPECT_EQ(Results(a)[0].id(), 1u);
  EXPECT_EQ(Results(b)[0].id(), 77u);
  EXPECT_EQ(Results(b)[0].timing().samples(0), 0.5);
  EXPECT_EQ(Results(a)[0].attempts(), 1u);
  EXPECT_EQ(Results(b)[0].attempts(), 0u);
}

// Both wait: the first that a worker takes is measured for both, by the rules of priorities and shares.
TEST_F(TrackerShareTest, TheMoreUrgentQueueIsServedFirst) {
  const std::string low = Open(0), high = Open(5), worker = Register("worker");
  ASSERT_TRUE(Submit(low, {Measurement(1), Same(2)}).ok());
  ASSERT_TRUE(Submit(high, {Same(3)}).ok());
  const auto grants = Grants(worker, 4);
  EXPECT_THAT(Ids(grants), ElementsAre(3, 1));
  Report(worker, {{grants[0].lease(), Timed()}});
  EXPECT_EQ(Results(low).size(), 1u);
  EXPECT_EQ(Results(high).size(), 1u);
}

TEST_F(TrackerShareTest, WhatDiffersIsMeasuredForEach) {
  const std::string worker = Register("worker");
  std::vector<v1::MeasureRequest> others(10, Same(1));
  others[0].set_workload("w2");
  others[1].set_schedule("s2");
  others[2].set_target("cuda");
  others[3].set_device_model("H200");
  others[4].mutable_timing()->set_repeat(4);
  others[5].mutable_timing()->set_number(9);
  others[6].set_mode(v1::MEASURE_MODE_VERIFY);
  others[7].set_input_seed(3);
  others[8].set_run_timeout_seconds(1);
  others[9].mutable_timing()->set_min_repeat_ms(7);
  ASSERT_TRUE(Submit(Open(), {Same(1)}).ok());
  for (const v1::MeasureRequest& other : others) ASSERT_TRUE(Submit(Open(), {other}).ok());
  // Of one queue, which asked for two; and of one that asks for other workers.
  ASSERT_TRUE(Submit(Open(), {Measurement(5), Measurement(6)}).ok());
  EXPECT_EQ(Grants(worker, 100).size(), 13u);
  const std::string labelled = Open(0, 1, {{"rack", "b"}});
  ASSERT_TRUE(Submit(labelled, {Same(1)}).ok());
  v1::RegisterRequest rack = Worker("rack");
  (*rack.mutable_labels())["rack"] = "b";
  EXPECT_EQ(Grants(Register(rack), 100).size(), 1u);
  const std::string twice = Open();
  ASSERT_TRUE(Submit(twice, {Same(1), Same(2)}).ok());
  EXPECT_THAT(Ids(Grants(worker, 100)), ElementsAre(2));  // the first of them is under way for another queue
}

TEST_F(TrackerShareTest, CancellingOneLeavesTheOther) {
  const std::string a = Open(), b = Open(), c = Open(), worker = Register("worker");
  ASSERT_TRUE(Submit(a, {Same(1)}).ok());
  const uint64_t lease = Grants(worker, 4).at(0).lease();
  ASSERT_TRUE(Submit(b, {Same(2)}).ok());
  ASSERT_TRUE(Submit(c, {Same(3)}).ok());
  auto waiting = Lease(worker, 0, 1);
  Cancel(c);
  Cancel(a);
  EXPECT_FALSE(waiting->status.has_value());  // nothing is revoked
  EXPECT_TRUE(Results(a)[0].has_cancelled());
  EXPECT_TRUE(Results(c)[0].has_cancelled());
  EXPECT_THAT(Report(worker, {}, {lease}).over(), IsEmpty());
  Report(worker, {{lease, Timed(0.25)}});
  ASSERT_EQ(Results(b).size(), 1u);
  EXPECT_EQ(Results(b)[0].timing().samples(0), 0.25);
  EXPECT_EQ(Results(a).size(), 1u);
  // The last one that is cancelled takes the lease with it.
  ASSERT_TRUE(Submit(a, {Same(5)}).ok());
  ASSERT_TRUE(Submit(b, {Same(6)}).ok());
  waiting = Lease(worker, 4, ~uint64_t{0} >> 1, 0);
  ASSERT_EQ(waiting->response.grants_size(), 1);
  const uint64_t next = waiting->response.grants(0).lease();
  Cancel(a);
  EXPECT_THAT(Report(worker, {}, {next}).over(), IsEmpty());
  v1::CloseRequest close;
  close.set_queue(b);
  v1::CloseResponse closed;
  ASSERT_TRUE(tracker_->Close(close, closed).ok());
  EXPECT_THAT(Report(worker, {}, {next}).over(), ElementsAre(next));
}

TEST_F(TrackerShareTest, ALostWorkerIsMadeUpForOnce) {
  const std::string a = Open(), b = Open();
  const std::string lost = Register("lost");
  ASSERT_TRUE(Submit(a, {Same(1)}).ok());
  ASSERT_EQ(Grants(lost, 4).size(), 1u);
  ASSERT_TRUE(Submit(b, {Same(2)}).ok());
  Register("lost");  // a new process: what the older one had is over
  const std::string worker = Register("worker");
  const auto grants = Grants(worker, 4);
  ASSERT_EQ(grants.size(), 1u);
  Report(worker, {{grants[0].lease(), Timed()}});
  EXPECT_EQ(Results(a).size(), 1u);
  EXPECT_EQ(Results(b).size(), 1u);
}

// A fault of the infrastructure speaks for nobody: the other one has its own attempts.
TEST_F(TrackerShareTest, AFaultIsNotShared) {
  const std::string a = Open(), b = Open(), worker = Register("worker");
  v1::MeasureRequest once = Same(1);
  once.set_max_attempts(1);
  ASSERT_TRUE(Submit(a, {once}).ok());
  const auto grants = Grants(worker, 4);
  ASSERT_TRUE(Submit(b, {Same(2)}).ok());
  Report(worker, {{grants.at(0).lease(), InfrastructureResult(MeasureStage::kRun, "killed")}});
  ASSERT_EQ(Results(a).size(), 1u);
  EXPECT_EQ(Results(a)[0].error().kind(), "infrastructure");
  EXPECT_THAT(Results(b), IsEmpty());
  const auto again = Grants(worker, 4);
  ASSERT_THAT(Ids(again), ElementsAre(2));
  Report(worker, {{again[0].lease(), Timed()}});
  EXPECT_TRUE(Results(b).at(0).has_timing());
}

// Slower than one queue's best may still be faster than another's.
TEST_F(TrackerShareTest, AStoppedRaceSpeaksForFasterBestsOnly) {
  const std::string a = Open(), faster = Open(), slower = Open(), none = Open(), worker = Register("worker");
  const auto against = [](uint64_t id, double best) {
    v1::MeasureRequest request = Same(id);
    if (best > 0) request.set_best_seconds(best);
    return request;
  };
  ASSERT_TRUE(Submit(a, {against(1, 1e-3)}).ok());
  const auto grants = Grants(worker, 4);
  ASSERT_TRUE(Submit(faster, {against(2, 0.5e-3)}).ok());
  ASSERT_TRUE(Submit(slower, {against(3, 2e-3)}).ok());
  ASSERT_TRUE(Submit(none, {against(4, 0)}).ok());
  v1::MeasureResult stopped = Timed(1.5e-3);
  stopped.mutable_timing()->set_stopped_early(true);
  Report(worker, {{grants.at(0).lease(), stopped}});
  EXPECT_EQ(Results(a).size(), 1u);
  EXPECT_EQ(Results(faster).size(), 1u);
  EXPECT_THAT(Results(slower), IsEmpty());
  EXPECT_THAT(Results(none), IsEmpty());
  // One of the two is measured for both, and the lease of a queue that cancels speaks for the other by its own best.
  const auto second = Grants(worker, 4);
  ASSERT_EQ(second.size(), 1u);
  const bool of_slower = second[0].request().has_best_seconds();
  Cancel(of_slower ? slower : none);
  stopped.mutable_timing()->set_samples(0, 2.5e-3);
  Report(worker, {{second[0].lease(), stopped}});
  const std::string& left = of_slower ? none : slower;
  if (of_slower) {
    EXPECT_THAT(Results(left), IsEmpty());  // nothing to race against: measured again, in full
    const auto third = Grants(worker, 4);
    ASSERT_EQ(third.size(), 1u);
    Report(worker, {{third[0].lease(), Timed(2.5e-3)}});
  }
  EXPECT_EQ(Results(left).size(), 1u);
}

TEST_F(TrackerShareTest, AnOutcomeOfTheLastMomentsIsTaken) {
  options_.share_recent = std::chrono::seconds(30);
  Restart();
  const std::string a = Open(), b = Open(), c = Open(), worker = Register("worker");
  ASSERT_TRUE(Submit(a, {Same(1)}).ok());
  Report(worker, {{Grants(worker, 4).at(0).lease(), Timed(0.5)}});
  for (int i = 0; i < 29; ++i) {
    Pass(std::chrono::seconds(1));
    Report(worker, {});
  }
  ASSERT_TRUE(Submit(b, {Same(7)}).ok());
  ASSERT_EQ(Results(b).size(), 1u);
  EXPECT_EQ(Results(b)[0].id(), 7u);
  EXPECT_EQ(Results(b)[0].timing().samples(0), 0.5);
  // Who asks again wants another measurement.
  ASSERT_TRUE(Submit(b, {Same(8)}).ok());
  ASSERT_TRUE(Submit(a, {Same(2)}).ok());
  const auto grants = Grants(worker, 4);
  ASSERT_EQ(grants.size(), 1u);
  Report(worker, {{grants[0].lease(), Timed(0.25)}});
  EXPECT_EQ(Results(a).size(), 2u);
  EXPECT_EQ(Results(b).size(), 2u);
  for (int i = 0; i < 31; ++i) {
    Pass(std::chrono::seconds(1));
    Report(worker, {});
    for (const std::string& queue : {a, b, c}) Results(queue);
  }
  ASSERT_TRUE(Submit(c, {Same(1)}).ok());
  EXPECT_THAT(Results(c), IsEmpty());
  // What a worker in quarantine said is nobody's.
  Report(worker, {{Grants(worker, 4).at(0).lease(), Timed(0.125)}});
  ASSERT_TRUE(Submit(c, {Measurement(2)}).ok());
  Report(worker, {{Grants(worker, 4).at(0).lease(), v1::MeasureResult()}});
  ASSERT_TRUE(Submit(a, {Same(3)}).ok());
  EXPECT_EQ(Results(a).size(), 2u);
}

class TrackerShareRestartTest : public TrackerShareTest {
 protected:
  TrackerShareRestartTest() {
    state_ = folder_.path() + "/state.db";
    Restart();
  }
  TemporaryFolder folder_;
};

TEST_F(TrackerShareRestartTest, WhoWaitsForAnothersMeasurementOutlivesARestart) {
  const std::string a = Open(), b = Open(), worker = Register("worker");
  ASSERT_TRUE(Submit(a, {Same(1)}).ok());
  const uint64_t lease = Grants(worker, 4).at(0).lease();
  ASSERT_TRUE(Submit(b, {Same(2)}).ok());
  Restart();
  EXPECT_THAT(Grants(worker, 4), IsEmpty());  // still the one measurement
  Cancel(a);
  Restart();
  Report(worker, {{lease, Timed(0.5)}});
  ASSERT_EQ(Results(b).size(), 1u);
  EXPECT_EQ(Results(b)[0].timing().samples(0), 0.5);
  EXPECT_TRUE(Results(a).at(0).has_cancelled());
}

// Random events, restarts among them: two tuners that ask for the same get one result for each request, and never two
// measurements at once.
TEST_F(TrackerShareRestartTest, EveryRequestGetsOneResultWhateverHappens) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](uint32_t percent) { return random() % 100 < percent; };
    const std::string queues[2] = {Open(), Open()};
    constexpr uint64_t kRequests = 40;
    std::map<uint64_t, int> results[2];
    uint64_t acknowledged[2] = {0, 0}, submitted[2] = {0, 0};
    std::map<std::string, std::map<uint64_t, std::string>> held;  // by session and lease: the schedule
    int measured = 0;
    std::string session = Register("worker");
    for (int step = 0; step < 4000 && results[0].size() + results[1].size() < 2 * kRequests; ++step) {
      const size_t q = random() % 2;
      if (submitted[q] < kRequests) {
        v1::MeasureRequest request = Same(++submitted[q]);
        request.set_schedule(std::to_string(request.id()));
        request.set_max_attempts(10);
        ASSERT_TRUE(Submit(queues[q], {request}).ok());
      }
      if (chance(1)) Restart(), acknowledged[0] = acknowledged[1] = 0;
      if (chance(1)) held.clear(), session = Register("worker");
      for (const v1::LeaseGrant& grant : Grants(session, 2)) {
        const std::string& schedule = grant.request().schedule();
        for (const auto& [lease, other] : held[session]) EXPECT_NE(other, schedule) << "measured twice at once";
        held[session][grant.lease()] = schedule;
      }
      if (chance(50) && !held[session].empty()) {
        const uint64_t lease = held[session].begin()->first;
        held[session].erase(lease);
        ++measured;
        Report(session, {{lease, chance(5) ? InfrastructureResult(MeasureStage::kRun, "x") : Timed()}});
      }
      for (const size_t of : {0, 1}) {
        for (const v1::MeasureResult& result : Results(queues[of], acknowledged[of])) {
          acknowledged[of] = result.sequence();
          ++results[of][result.id()];
        }
      }
    }
    EXPECT_EQ(results[0].size(), kRequests) << seed;
    EXPECT_EQ(results[1].size(), kRequests) << seed;
    EXPECT_LT(measured, 2 * kRequests) << seed;
  }
}

}  // namespace
}  // namespace diapason
