#include "worker/tracker/tracker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <random>
#include <thread>

#include "tests/worker/tracker/tracker_fixture.h"
#include "worker/process/convert.h"

namespace diapason {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_F(TrackerTest, BringsAResultBack) {
  std::string queue = Open(), worker = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {7}).ok());
  std::vector<v1::LeaseGrant> grants = Grants(worker, 4);
  ASSERT_THAT(Ids(grants), ElementsAre(7));
  EXPECT_EQ(grants[0].device(), "cuda:0");
  EXPECT_EQ(grants[0].attempt(), 1u);
  Report(worker, {{grants[0].lease(), Timed(0.5)}});
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].id(), 7u);
  EXPECT_EQ(results[0].sequence(), 1u);
  EXPECT_EQ(results[0].attempts(), 1u);
  EXPECT_EQ(results[0].timing().samples(0), 0.5);
  // Until it is acknowledged it is given again.
  EXPECT_EQ(Results(queue).size(), 1u);
  EXPECT_THAT(Results(queue, 1), IsEmpty());
}

TEST_F(TrackerTest, WaitingWorkersShareWhatComes) {
  std::string queue = Open(), a = Register("a"), b = Register("b");
  auto first = Lease(a, 4), second = Lease(b, 4);
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3, 4}).ok());
  EXPECT_EQ(first->response.grants_size(), 2);
  EXPECT_EQ(second->response.grants_size(), 2);
}

TEST_F(TrackerTest, DevicesOfAWorkerGetEquallyMuch) {
  const std::string queue = Open();
  v1::RegisterRequest worker = Worker("two");
  *worker.add_devices() = worker.devices(0);
  worker.mutable_devices(1)->set_name("cuda:1");
  worker.mutable_devices(1)->mutable_facts()->set_uuid("another");
  const std::string session = Register(worker);
  const auto devices = [](const Waiting& waiting) {
    std::map<std::string, int> count;
    for (const v1::LeaseGrant& grant : waiting.response.grants()) ++count[grant.device()];
    return count;
  };
  const std::map<std::string, int> even = {{"cuda:0", 4}, {"cuda:1", 4}};
  // What comes before it asks, and what comes while it waits.
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3, 4, 5, 6, 7, 8}).ok());
  EXPECT_EQ(devices(*Lease(session, 20, 0, 0, {"cuda:0", "cuda:1"})), even);
  const auto waiting = Lease(session, 20, 1, 20000, {"cuda:0", "cuda:1"});
  ASSERT_TRUE(SubmitIds(queue, {11, 12, 13, 14, 15, 16, 17, 18}).ok());
  EXPECT_EQ(devices(*waiting), even);
}

TEST_F(TrackerTest, GivesNoMoreThanTheCapacity) {
  std::string queue = Open(), worker = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3, 4}).ok());
  EXPECT_THAT(Ids(Grants(worker, 3)), ElementsAre(1, 2, 3));
  EXPECT_THAT(Ids(Grants(worker, 0)), IsEmpty());
  EXPECT_THAT(Ids(Grants(worker, 3)), ElementsAre(4));
}

TEST_F(TrackerTest, KeepsModelsApart) {
  std::string queue = Open(), h200 = Register("a"), h100 = Register(Worker("b", "H100"));
  ASSERT_TRUE(
      Submit(queue, {Measurement(1, "H100"), Measurement(2, "H200"), Measurement(3, "B200"), Measurement(4)}).ok());
  EXPECT_THAT(Ids(Grants(h100, 1)), ElementsAre(1));
  EXPECT_THAT(Ids(Grants(h200, 9)), testing::UnorderedElementsAre(2, 4));
  EXPECT_THAT(Ids(Grants(h100, 9)), IsEmpty());
}

// A worker that vanishes loses its leases; the answer that comes late is ignored.
TEST_F(TrackerTest, ALostLeaseRunsElsewhereAndTheLateAnswerIsIgnored) {
  std::string queue = Open(), a = Register("a"), b = Register("b");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  uint64_t lost = Grants(a, 1)[0].lease();
  for (int i = 0; i < 20; ++i) {
    Pass(std::chrono::seconds(1));
    Report(b, {});
    Report(a, {});  // alive, but it does not renew
    Results(queue);
  }
  std::vector<v1::LeaseGrant> grants = Grants(b, 1);
  ASSERT_THAT(Ids(grants), ElementsAre(1));
  EXPECT_EQ(grants[0].attempt(), 2u);
  EXPECT_NE(grants[0].lease(), lost);
  EXPECT_THAT(Report(a, {{lost, Timed(111)}}, {lost}).over(), ElementsAre(lost));
  EXPECT_THAT(Results(queue), IsEmpty());
  Report(b, {{grants[0].lease(), Timed(222)}});
  Report(b, {{grants[0].lease(), Timed(333)}});  // told twice
  Report(a, {{lost, Timed(111)}});
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].timing().samples(0), 222);
}

TEST_F(TrackerTest, RenewedLeasesLive) {
  std::string queue = Open(), worker = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  uint64_t lease = Grants(worker, 1)[0].lease();
  for (int i = 0; i < 70; ++i) {
    Pass(std::chrono::seconds(1));
    EXPECT_THAT(Report(worker, {}, {lease}).over(), IsEmpty());
    Results(queue);
  }
}

TEST_F(TrackerTest, ASilentWorkerIsTakenForLost) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  ASSERT_EQ(Grants(a, 1).size(), 1u);
  auto waiting = Lease(a, 1, 1);
  Pass(std::chrono::seconds(16));
  EXPECT_EQ(*waiting->status, absl::NotFoundError("this session is over: it did not report in time"));
  Report(a, {});
  EXPECT_EQ(report_status_, absl::NotFoundError("this session is over, or the tracker was restarted"));
  std::string again = Register("a");
  EXPECT_THAT(Ids(Grants(again, 1)), ElementsAre(1));
}

TEST_F(TrackerTest, AnewSessionEndsTheOlderOne) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  uint64_t lease = Grants(a, 1)[0].lease();
  std::string restarted = Register("a");
  Report(a, {{lease, Timed()}});
  EXPECT_TRUE(absl::IsNotFound(report_status_));
  EXPECT_THAT(Results(queue), IsEmpty());
  EXPECT_THAT(Ids(Grants(restarted, 1)), ElementsAre(1));
}

TEST_F(TrackerTest, InfrastructureFaultsAreTriedElsewhereAndThenReported) {
  std::string queue = Open(), a = Register("a"), b = Register("b");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  v1::MeasureResult fault = InfrastructureResult(MeasureStage::kRun, "the runner was killed");
  Report(a, {{Grants(a, 1)[0].lease(), fault}});
  EXPECT_THAT(Grants(a, 1), IsEmpty());  // it had its try
  Report(b, {{Grants(b, 1)[0].lease(), fault}});
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].error().kind(), "infrastructure");
  EXPECT_EQ(results[0].error().text(), "the runner was killed");
  EXPECT_EQ(results[0].attempts(), 2u);
}

TEST_F(TrackerTest, AFaultOfTheOnlyWorkerIsTriedThereAgain) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  Report(a, {{Grants(a, 1)[0].lease(), InfrastructureResult(MeasureStage::kRun, "killed")}});
  EXPECT_THAT(Ids(Grants(a, 1)), ElementsAre(1));
}

TEST_F(TrackerTest, ErrorsOfTheCandidateAreNotTriedAgain) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  v1::MeasureResult crash;
  SetError(ErrorKind::kRunCrash, MeasureStage::kRun, "signal 11", *crash.mutable_error());
  Report(a, {{Grants(a, 1)[0].lease(), crash}});
  ASSERT_EQ(Results(queue).size(), 1u);
  EXPECT_EQ(Results(queue)[0].error().kind(), "run_crash");
}

TEST_F(TrackerTest, LeavingGivesBackWithoutCountingAnAttempt) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3}).ok());
  ASSERT_EQ(Grants(a, 3).size(), 3u);
  v1::LeaveRequest leave;
  leave.set_session(a);
  v1::LeaveResponse left;
  EXPECT_TRUE(tracker_->Leave(leave, left).ok());
  EXPECT_TRUE(tracker_->Leave(leave, left).ok());
  std::string b = Register("b");
  std::vector<v1::LeaseGrant> grants = Grants(b, 3);
  EXPECT_THAT(Ids(grants), ElementsAre(1, 2, 3));
  EXPECT_EQ(grants[0].attempt(), 1u);
}

TEST_F(TrackerTest, AnAnswerThatWasLostIsGivenAgain) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3}).ok());
  auto lost = Lease(a, 2);
  ASSERT_EQ(lost->response.grants_size(), 2);
  auto again = Lease(a, 2, /*received=*/0, /*wait_ms=*/0);
  ASSERT_EQ(again->response.grants_size(), 2);
  EXPECT_EQ(again->response.grants(0).lease(), lost->response.grants(0).lease());
  auto next = Lease(a, 1, again->response.batch(), 0);
  ASSERT_EQ(next->response.grants_size(), 1);
  EXPECT_EQ(next->response.grants(0).request().id(), 3u);
}

TEST_F(TrackerTest, CancelRevokesLeases) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  uint64_t lease = Grants(a, 1)[0].lease();
  auto waiting = Lease(a, 0, 1);
  v1::CancelRequest cancel;
  cancel.set_queue(queue);
  cancel.set_all(true);
  v1::CancelResponse cancelled;
  ASSERT_TRUE(tracker_->Cancel(cancel, cancelled).ok());
  EXPECT_EQ(cancelled.cancelled(), 2u);
  EXPECT_THAT(waiting->response.revoked(), ElementsAre(lease));
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].cancelled().reason(), "the coordinator cancelled it");
  Report(a, {{lease, Timed()}});
  EXPECT_EQ(Results(queue).size(), 2u);
  EXPECT_THAT(Grants(a, 5), IsEmpty());
}

TEST_F(TrackerTest, ClosingAQueueRevokesItsLeases) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3}).ok());
  uint64_t lease = Grants(a, 1)[0].lease();
  auto waiting = Lease(a, 0, 1);
  v1::CloseRequest close;
  close.set_queue(queue);
  v1::CloseResponse closed;
  ASSERT_TRUE(tracker_->Close(close, closed).ok());
  EXPECT_TRUE(tracker_->Close(close, closed).ok());
  EXPECT_THAT(waiting->response.revoked(), ElementsAre(lease));
  EXPECT_THAT(Report(a, {}, {lease}).over(), ElementsAre(lease));
  EXPECT_THAT(Grants(a, 5), IsEmpty());
}

TEST_F(TrackerTest, SubmittingTwiceIsSubmittingOnce) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  std::vector<v1::LeaseGrant> grants = Grants(a, 9);
  ASSERT_THAT(Ids(grants), ElementsAre(1, 2));
  Report(a, {{grants[0].lease(), Timed()}});
  Results(queue, 1);
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  EXPECT_THAT(Grants(a, 9), IsEmpty());
}

TEST_F(TrackerTest, QueuesHaveBounds) {
  options_.max_pending = 3;
  options_.max_request_bytes = 100;
  Restart();
  std::string queue = Open();
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3}).ok());
  EXPECT_EQ(SubmitIds(queue, {4}), absl::ResourceExhaustedError("the queue holds 3 requests and takes 3"));
  v1::MeasureRequest large = Measurement(4);
  large.set_workload(std::string(200, 'x'));
  EXPECT_TRUE(absl::IsInvalidArgument(Submit(queue, {large})));
  EXPECT_EQ(SubmitIds(queue, {0}), absl::InvalidArgumentError("a measurement request without id"));
  v1::MeasureRequest empty = Measurement(4);
  empty.clear_schedule();
  EXPECT_EQ(Submit(queue, {empty}), absl::InvalidArgumentError("measurement request 4 has no schedule"));
}

TEST_F(TrackerTest, QueuesShareByWeightAndPriority) {
  std::string light = Open(0, 1), heavy = Open(0, 3), urgent = Open(5, 1), a = Register("a");
  std::vector<uint64_t> ids;
  for (uint64_t id = 1; id <= 40; ++id) ids.push_back(id);
  std::vector<uint64_t> heavy_ids, urgent_ids{1001, 1002};
  for (uint64_t id : ids) heavy_ids.push_back(100 + id);
  ASSERT_TRUE(SubmitIds(light, ids).ok());
  ASSERT_TRUE(SubmitIds(heavy, heavy_ids).ok());
  ASSERT_TRUE(SubmitIds(urgent, urgent_ids).ok());
  std::vector<uint64_t> granted = Ids(Grants(a, 22));
  ASSERT_EQ(granted.size(), 22u);
  EXPECT_THAT(std::vector<uint64_t>(granted.begin(), granted.begin() + 2), ElementsAre(1001, 1002));
  auto of_light = std::count_if(granted.begin() + 2, granted.end(), [](uint64_t id) { return id <= 40; });
  EXPECT_NEAR(static_cast<double>(of_light), 5, 1);
}

TEST_F(TrackerTest, LabelsLimitAQueueToWorkers) {
  std::string queue = Open(0, 1, {{"rack", "b"}});
  v1::RegisterRequest other = Worker("a"), right = Worker("b");
  (*right.mutable_labels())["rack"] = "b";
  std::string a = Register(other), b = Register(right);
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  EXPECT_THAT(Grants(a, 1), IsEmpty());
  EXPECT_THAT(Ids(Grants(b, 1)), ElementsAre(1));
}

TEST_F(TrackerTest, ADeviceInQuarantineGetsNothing) {
  std::string queue = Open(), a = Register("a");
  v1::ReportRequest report;
  report.set_session(a);
  v1::DeviceStatus& device = *report.add_devices();
  device.set_device("cuda:0");
  device.set_state(v1::DEVICE_STATE_QUARANTINED);
  v1::ReportResponse response;
  ASSERT_TRUE(tracker_->Report(report, response).ok());
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  EXPECT_THAT(Grants(a, 1), IsEmpty());
  device.set_state(v1::DEVICE_STATE_READY);
  ASSERT_TRUE(tracker_->Report(report, response).ok());
  EXPECT_THAT(Ids(Grants(a, 1)), ElementsAre(1));
}

// An answer that comes twice, also in one report, counts once.
TEST_F(TrackerTest, ARepeatedAnswerIsIgnored) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  std::vector<v1::LeaseGrant> grants = Grants(a, 1);
  ASSERT_EQ(grants.size(), 1u);
  Report(a, {{grants[0].lease(), Timed(0.25)}, {grants[0].lease(), Timed(0.5)}});
  Report(a, {{grants[0].lease(), Timed(0.75)}});
  std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].timing().samples(0), 0.25);
  // Neither does it count for another request of another lease.
  Report(a, {{grants[0].lease() + 1, Timed(0.5)}});
  EXPECT_EQ(Results(queue).size(), 1u);
}

// A job of a thousand measurements that was there first does not hold up one of eight.
TEST_F(TrackerTest, ALargeJobDoesNotStarveASmallOne) {
  std::string large = Open(), small = Open(), a = Register("a");
  std::vector<uint64_t> many(1000);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i + 1;
  ASSERT_TRUE(SubmitIds(large, many).ok());
  for (int i = 0; i < 100; ++i) Report(a, {{Grants(a, 1).at(0).lease(), Timed()}});
  ASSERT_TRUE(SubmitIds(small, {1, 2, 3, 4, 5, 6, 7, 8}).ok());
  for (int i = 0; i < 18; ++i) Report(a, {{Grants(a, 1).at(0).lease(), Timed()}});
  EXPECT_EQ(Results(small).size(), 8u);
}

TEST_F(TrackerTest, ADeviceThatDriftsIsExcludedWhenAskedFor) {
  options_.exclude_drift = 1.2;
  Restart();
  std::string queue = Open();
  std::map<std::string, std::string> sessions;
  for (const char* name : {"a", "b", "c"}) sessions[name] = Register(name);
  auto report = [&](double seconds_of_a) {
    for (const auto& [name, session] : sessions) {
      v1::ReportRequest request;
      request.set_session(session);
      v1::DeviceStatistics& device = *request.add_device_statistics();
      device.set_device("cuda:0");
      device.set_reference_seconds(name == "a" ? seconds_of_a : 1e-3);
      v1::ReportResponse response;
      ASSERT_TRUE(tracker_->Report(request, response).ok());
    }
    Pass(std::chrono::milliseconds(1100));
  };
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3}).ok());
  report(1.3e-3);
  EXPECT_THAT(Grants(sessions["a"], 1), IsEmpty());
  EXPECT_EQ(Grants(sessions["b"], 1).size(), 1u);
  v1::ListWorkersResponse fleet;
  ASSERT_TRUE(tracker_->ListWorkers({}, fleet).ok());
  EXPECT_TRUE(fleet.workers(0).rates(0).excluded());
  EXPECT_FALSE(fleet.workers(1).rates(0).excluded());
  report(1.1e-3);
  EXPECT_EQ(Grants(sessions["a"], 1).size(), 1u);
  // One of two is not outvoted.
  v1::LeaveRequest leave;
  leave.set_session(sessions["c"]);
  v1::LeaveResponse left;
  ASSERT_TRUE(tracker_->Leave(leave, left).ok());
  sessions.erase("c");
  report(1.3e-3);
  EXPECT_EQ(Grants(sessions["a"], 1).size(), 1u);
}

TEST_F(TrackerTest, TellsHowTheFleetIs) {
  std::string queue = Open();
  std::map<std::string, std::string> sessions;
  for (const char* name : {"a", "b", "c"}) sessions[name] = Register(name);
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3}).ok());
  ASSERT_EQ(Grants(sessions["a"], 1).size(), 1u);
  auto report = [&](const std::string& name, uint64_t runs, uint64_t failed, double busy, double reference) {
    v1::ReportRequest request;
    request.set_session(sessions[name]);
    v1::DeviceStatistics& device = *request.add_device_statistics();
    device.set_device("cuda:0");
    device.set_runs(runs);
    device.set_failed_runs(failed);
    device.set_busy_seconds(busy);
    device.set_reference_seconds(reference);
    v1::ReportResponse response;
    EXPECT_TRUE(tracker_->Report(request, response).ok());
  };
  for (int second = 0; second <= 8; ++second) {
    report("a", 100 + 5 * second, 10 + second, 50 + 0.5 * second, 1.5e-3);
    report("b", 0, 0, 0, 1e-3);
    report("c", 0, 0, 0, 1e-3);
    Pass(std::chrono::seconds(1));
  }
  v1::ListWorkersResponse fleet;
  ASSERT_TRUE(tracker_->ListWorkers({}, fleet).ok());
  ASSERT_EQ(fleet.workers_size(), 3);
  const v1::DeviceRates& a = fleet.workers(0).rates(0);
  EXPECT_EQ(a.leases(), 1u);
  EXPECT_EQ(a.runs(), 140u);
  EXPECT_DOUBLE_EQ(a.trials_per_second(), 5);
  EXPECT_DOUBLE_EQ(a.utilisation(), 0.5);
  EXPECT_DOUBLE_EQ(a.error_rate(), 0.2);
  EXPECT_DOUBLE_EQ(a.drift(), 1.5);
  EXPECT_DOUBLE_EQ(fleet.workers(1).rates(0).drift(), 1);
  // Requests that name no model stand apart from the devices of a model.
  ASSERT_EQ(fleet.models_size(), 2);
  EXPECT_EQ(fleet.models(0).model(), "");
  EXPECT_EQ(fleet.models(0).pending(), 2u);
  EXPECT_EQ(fleet.models(1).model(), "H200");
  EXPECT_EQ(fleet.models(1).total(), 3u);
  EXPECT_EQ(fleet.models(1).free(), 2u);
}

// A tracker that stood still does not blame its peers.
TEST_F(TrackerTest, AStallOfTheTrackerEndsNoLease) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  uint64_t lease = Grants(a, 1)[0].lease();
  tracker_->Tick();
  now_ += std::chrono::hours(1);
  tracker_->Tick();
  EXPECT_THAT(Report(a, {{lease, Timed()}}).over(), IsEmpty());
  EXPECT_TRUE(report_status_.ok());
  EXPECT_EQ(Results(queue).size(), 1u);
}

// Its clock never goes back, also when calls come in while Tick is late.
TEST_F(TrackerTest, WaitingIsMeasuredFromSubmissionToLease) {
  const std::string queue = Open(), a = Register("a");
  tracker_->Tick();
  now_ += std::chrono::milliseconds(1900);
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  now_ += std::chrono::milliseconds(200);
  tracker_->Tick();
  const uint64_t first = Grants(a, 1).at(0).lease();
  Report(a, {{first, Timed()}});
  Pass(std::chrono::milliseconds(300));
  const uint64_t second = Grants(a, 1).at(0).lease();
  // What a worker says of it is not taken.
  v1::MeasureResult result = Timed();
  result.mutable_times()->set_queued_seconds(1e9);
  Report(a, {{second, result}});
  const std::vector<v1::MeasureResult> results = Results(queue);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_NEAR(results[0].times().queued_seconds(), 0.2, 1e-3);
  EXPECT_NEAR(results[1].times().queued_seconds(), 0.5, 1e-3);
  // And the metric has the same.
  for (const Metric& metric : tracker_->Metrics()) {
    if (metric.name != "diapason_tracker_stage_seconds") continue;
    ASSERT_EQ(metric.values.at(0).labels, (Metric::Labels{{"stage", "queued"}}));
    EXPECT_EQ(metric.values[0].distribution.count(), 2u);
    EXPECT_NEAR(metric.values[0].distribution.sum(), 0.7, 1e-3);
    return;
  }
  ADD_FAILURE() << "there is no diapason_tracker_stage_seconds";
}

TEST_F(TrackerTest, AnAbandonedQueueExpires) {
  std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  uint64_t lease = Grants(a, 1)[0].lease();
  for (int i = 0; i < 61; ++i) {
    Pass(std::chrono::seconds(1));
    Report(a, {}, {lease});
  }
  EXPECT_THAT(Report(a, {}, {lease}).over(), ElementsAre(lease));
  EXPECT_THAT(Results(queue), IsEmpty());
  EXPECT_EQ(next_status_, absl::NotFoundError("this queue has expired, or the tracker was restarted"));
  EXPECT_THAT(Grants(a, 1), IsEmpty());
}

TEST_F(TrackerTest, RequestsMayGiveUpWaiting) {
  std::string queue = Open();
  v1::MeasureRequest request = Measurement(1);
  request.set_queue_timeout_seconds(5);
  ASSERT_TRUE(Submit(queue, {request}).ok());
  Pass(std::chrono::seconds(4));
  EXPECT_THAT(Results(queue), IsEmpty());
  Pass(std::chrono::seconds(2));
  ASSERT_EQ(Results(queue).size(), 1u);
  EXPECT_EQ(Results(queue)[0].cancelled().reason(), "it waited longer than its queue_timeout_seconds");
}

TEST_F(TrackerTest, WaitsEndInTime) {
  std::string a = Register("a");
  auto waiting = Lease(a, 1, 0, 5000);
  EXPECT_FALSE(waiting->status.has_value());
  auto newer = Lease(a, 1, 0, 5000);
  EXPECT_TRUE(waiting->status.has_value());  // ended by the newer one
  Pass(std::chrono::seconds(6));
  ASSERT_TRUE(newer->status.has_value());
  EXPECT_TRUE(newer->status->ok());
  EXPECT_EQ(newer->response.grants_size(), 0);
}

TEST_F(TrackerTest, ShutdownAnswersWhatWaits) {
  std::string a = Register("a");
  auto waiting = Lease(a, 1);
  tracker_->Shutdown();
  EXPECT_EQ(*waiting->status, absl::UnavailableError("the tracker is stopping"));
}

TEST_F(TrackerTest, RefusesWhatDoesNotFit) {
  v1::RegisterRequest request = Worker("a");
  v1::RegisterResponse response;
  request.mutable_protocol()->set_low(7);
  request.mutable_protocol()->set_high(9);
  EXPECT_EQ(
      tracker_->Register(request, response),
      absl::FailedPreconditionError("this tracker speaks protocol 1 and the caller 7 to 9: install the same version of "
                                    "diapason on both"));
  v1::OpenRequest open;
  v1::OpenResponse opened;
  *open.mutable_protocol() = request.protocol();
  EXPECT_EQ(tracker_->Open(open, opened), tracker_->Register(request, response));
  Register("a");
  request = Worker("b");
  request.mutable_devices(0)->mutable_facts()->set_uuid("uuid of a");
  EXPECT_EQ(tracker_->Register(request, response),
            absl::AlreadyExistsError(
                "device 'cuda:0' (uuid of a) of worker 'b' is registered by worker 'a' already: stop one "
                "of them, or give them different devices"));
  request = Worker("c");
  *request.add_devices() = request.devices(0);
  EXPECT_EQ(tracker_->Register(request, response),
            absl::InvalidArgumentError("worker 'c' has two devices named 'cuda:0'"));
}

// For the thread sanitizer, which does not see through gRPC.
TEST(TrackerThreadsTest, WorkersCoordinatorsAndTheClockAtOnce) {
  Tracker tracker;
  std::atomic<bool> stop = false;
  constexpr int kCoordinators = 3, kWorkers = 3, kRequests = 200;
  std::atomic<bool> ticking = true;
  std::vector<std::thread> threads;
  std::thread ticker([&] {
    while (ticking) {
      tracker.Tick();
      v1::ListWorkersResponse response;
      EXPECT_TRUE(tracker.ListWorkers({}, response).ok());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int w = 0; w < kWorkers; ++w) {
    threads.emplace_back([&, w] {
      v1::RegisterRequest worker;
      worker.mutable_protocol()->set_high(1);
      worker.set_worker_id(std::to_string(w));
      worker.add_devices()->set_name("d");
      worker.mutable_devices(0)->set_target("cpu");
      v1::RegisterResponse session;
      ASSERT_TRUE(tracker.Register(worker, session).ok());
      v1::LeaseRequest lease;
      lease.set_session(session.session());
      lease.add_capacity()->set_device("d");
      lease.mutable_capacity(0)->set_free(3);
      lease.set_max_wait_ms(20);
      while (!stop) {
        std::promise<v1::LeaseResponse> answer;
        tracker.Lease(lease, [&](absl::Status, v1::LeaseResponse response) { answer.set_value(std::move(response)); });
        v1::LeaseResponse response = answer.get_future().get();
        lease.set_received(response.batch());
        v1::ReportRequest report;
        report.set_session(session.session());
        for (const auto& grant : response.grants()) {
          report.add_outcomes()->set_lease(grant.lease());
          v1::Timing& timing = *report.mutable_outcomes(report.outcomes_size() - 1)->mutable_result()->mutable_timing();
          timing.set_number(1);
          timing.add_samples(1e-3);
        }
        v1::ReportResponse reported;
        EXPECT_TRUE(tracker.Report(report, reported).ok());
      }
    });
  }
  std::vector<std::thread> coordinators;
  for (int c = 0; c < kCoordinators; ++c) {
    coordinators.emplace_back([&] {
      v1::OpenRequest open;
      open.mutable_protocol()->set_high(1);
      v1::OpenResponse opened;
      ASSERT_TRUE(tracker.Open(open, opened).ok());
      for (uint64_t id = 1; id <= kRequests; ++id) {
        v1::SubmitRequest submit;
        submit.set_queue(opened.queue());
        v1::MeasureRequest& request = *submit.add_requests();
        request.set_id(id);
        request.set_workload("w");
        request.set_schedule("s");
        request.set_target("cpu");
        v1::SubmitResponse response;
        ASSERT_TRUE(tracker.Submit(submit, response).ok());
      }
      v1::NextRequest next;
      next.set_queue(opened.queue());
      next.set_max_wait_ms(1000);
      for (size_t got = 0; got < kRequests;) {
        std::promise<v1::NextResponse> answer;
        tracker.Next(next, [&](absl::Status, v1::NextResponse response) { answer.set_value(std::move(response)); });
        v1::NextResponse response = answer.get_future().get();
        got += static_cast<size_t>(response.results_size());
        for (const auto& result : response.results()) next.set_acknowledged(result.sequence());
      }
    });
  }
  for (std::thread& thread : coordinators) thread.join();
  stop = true;
  for (std::thread& thread : threads) thread.join();
  ticking = false;  // it ends the waits of the others
  ticker.join();
}

// Random events, among them lost and repeated messages; in the end each request has exactly one result.
TEST_F(TrackerTest, EveryRequestGetsOneResultWhateverHappens) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    Restart();
    std::mt19937 random(seed);
    auto chance = [&](uint32_t percent) { return random() % 100 < percent; };
    std::string queue = Open();
    constexpr uint64_t kRequests = 100;
    std::vector<std::string> sessions(4);
    std::vector<uint64_t> received(4);
    std::vector<std::vector<uint64_t>> held(4);
    std::map<uint64_t, int> results;
    uint64_t acknowledged = 0, submitted = 0;
    for (int step = 0; step < 20000 && results.size() < kRequests; ++step) {
      size_t w = random() % 4;
      bool calm = step > 5000;  // let it end
      if (submitted < kRequests && chance(10)) {
        ++submitted;
        ASSERT_TRUE(SubmitIds(queue, {submitted}).ok());
        if (chance(30)) {
          ASSERT_TRUE(SubmitIds(queue, {submitted}).ok());
        }
      }
      if (sessions[w].empty() || (!calm && chance(1))) {
        sessions[w] = Register("worker" + std::to_string(w));
        received[w] = 0;
        held[w].clear();
      }
      auto answer = Lease(sessions[w], 2, received[w], 0);
      if (absl::IsNotFound(*answer->status)) {
        sessions[w].clear();
        continue;
      }
      if (calm || !chance(20)) {  // else it is lost on the way
        received[w] = answer->response.batch();
        for (const auto& grant : answer->response.grants()) held[w].push_back(grant.lease());
      }
      std::vector<std::pair<uint64_t, v1::MeasureResult>> outcomes;
      for (uint64_t lease : held[w]) {
        if (chance(50))
          outcomes.push_back({lease, chance(10) ? InfrastructureResult(MeasureStage::kRun, "x") : Timed()});
      }
      bool heard = calm || !chance(20);
      if (heard || chance(50)) Report(sessions[w], outcomes, held[w]);
      if (heard) {
        for (auto& [lease, result] : outcomes) std::erase(held[w], lease);
      }
      if (chance(5)) Pass(std::chrono::milliseconds(calm ? 100 : random() % 20000));
      for (const v1::MeasureResult& result : Results(queue, acknowledged)) {
        ASSERT_EQ(result.sequence(), acknowledged + 1) << "seed " << seed;
        acknowledged = result.sequence();
        EXPECT_EQ(++results[result.id()], 1) << "seed " << seed;
      }
    }
    EXPECT_EQ(results.size(), kRequests) << "seed " << seed;
  }
}

TEST_F(TrackerTest, AWorkerWhoseDeviceCannotBeIsRefused) {
  v1::RegisterRequest worker = Worker("w");
  worker.mutable_devices(0)->mutable_facts()->set_vector_bytes(0);
  v1::RegisterResponse response;
  EXPECT_EQ(
      tracker_->Register(worker, response),
      absl::InvalidArgumentError("device 'cuda:0' of worker 'w' cannot be as it says: vector_bytes is 0 and must be a "
                                 "power of two from 4 to 1024; install the tracker's version of diapason there"));
  worker = Worker("w");
  worker.mutable_devices(0)->set_target("abacus");
  EXPECT_TRUE(absl::IsInvalidArgument(tracker_->Register(worker, response)));
  EXPECT_EQ(response.session(), "");
}

}  // namespace
}  // namespace diapason
