// What a tracker holds for others has bounds, whoever is slow or greedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>

#include "tests/worker/tracker/tracker_fixture.h"
#include "worker/process/convert.h"
#include "worker/process/outcome_check.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

// A tuner that submits and never fetches: its results count as its requests do.
TEST_F(TrackerTest, ATunerThatFetchesNothingIsToldToWait) {
  options_.max_stored_bytes = 100000;
  options_.max_pending = 1000000;
  Restart();
  const std::string slow = Open(), other = Open(), a = Register("a");
  v1::MeasureResult large;
  SetError(ErrorKind::kCompile, MeasureStage::kCompile, std::string(3000, 'x'), *large.mutable_error());
  uint64_t id = 0;
  absl::Status status;
  while (status.ok() && id < 1000) {
    status = SubmitIds(slow, {++id});
    if (status.ok()) Report(a, {{Grants(a, 1).at(0).lease(), large}});
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the tracker holds 10"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(" bytes of requests and results and takes 100000"));
  EXPECT_LE(id, 100000u / 3000 + 2);
  EXPECT_TRUE(absl::IsResourceExhausted(SubmitIds(other, {1})));
  // Once it has fetched there is room again, and nothing was lost.
  EXPECT_EQ(Results(slow).size(), id - 1);
  Results(slow, id - 1);
  EXPECT_TRUE(SubmitIds(slow, {id}).ok());
  EXPECT_TRUE(SubmitIds(other, {1}).ok());
}

TEST_F(TrackerTest, TunersAndWorkersHaveABound) {
  options_.max_queues = 2;
  options_.max_workers = 2;
  Restart();
  Open();
  const std::string second = Open();
  v1::OpenRequest open;
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse opened;
  EXPECT_EQ(tracker_->Open(open, opened), absl::ResourceExhaustedError("the tracker has 2 queues and takes no more"));
  v1::CloseRequest close;
  close.set_queue(second);
  v1::CloseResponse closed;
  ASSERT_TRUE(tracker_->Close(close, closed).ok());
  EXPECT_TRUE(tracker_->Open(open, opened).ok());

  Register("a");
  Register("b");
  v1::RegisterResponse registered;
  EXPECT_EQ(tracker_->Register(Worker("c"), registered),
            absl::ResourceExhaustedError("the tracker has 2 workers and takes no more"));
  Register("b");  // in place of the one before
}

TEST_F(TrackerTest, ATokenHasQuotas) {
  options_.max_queues_per_token = 2;
  options_.max_pending_per_token = 3;
  options_.max_stored_bytes_per_token = 1000;
  Restart();
  const std::string first = Open("alice"), second = Open("alice"), other = Open("bob");
  v1::OpenRequest open;
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse opened;
  EXPECT_EQ(tracker_->Open(open, opened, "alice"),
            absl::ResourceExhaustedError("the token of 'alice' has 2 queues and may open no more; close some"));
  ASSERT_TRUE(SubmitIds(first, {1, 2}).ok());
  EXPECT_EQ(SubmitIds(second, {1, 2}),
            absl::ResourceExhaustedError("the queues of the token of 'alice' hold 2 requests and take 3"));
  v1::MeasureRequest large = Measurement(3);
  large.set_workload(std::string(2000, 'w'));
  const absl::Status bytes = Submit(second, {large});
  EXPECT_TRUE(absl::IsResourceExhausted(bytes)) << bytes;
  EXPECT_THAT(std::string(bytes.message()), HasSubstr(" bytes of requests and results and take 1000"));
  EXPECT_TRUE(SubmitIds(other, {1, 2, 3}).ok());
  // What is over counts no more.
  v1::CancelRequest cancel;
  cancel.set_queue(first);
  cancel.set_all(true);
  v1::CancelResponse cancelled;
  ASSERT_TRUE(tracker_->Cancel(cancel, cancelled).ok());
  EXPECT_EQ(Results(first).size(), 2u);
  Results(first, 2);
  EXPECT_TRUE(SubmitIds(second, {1, 2, 4}).ok());
  v1::CloseRequest close;
  close.set_queue(first);
  v1::CloseResponse closed;
  ASSERT_TRUE(tracker_->Close(close, closed).ok());
  EXPECT_TRUE(tracker_->Open(open, opened, "alice").ok());
}

TEST_F(TrackerTest, PrioritiesAndWeightsHaveLimits) {
  v1::OpenRequest open;
  open.mutable_protocol()->set_high(1);
  v1::OpenResponse opened;
  open.set_priority(2147483647);
  EXPECT_EQ(tracker_->Open(open, opened),
            absl::InvalidArgumentError("OpenRequest.priority is 2147483647; its limits are -1000 and 1000"));
  open.set_priority(1000);
  for (const double weight : {1e-7, 1e7, -1.0, std::nan("")}) {
    open.set_weight(weight);
    EXPECT_TRUE(absl::IsInvalidArgument(tracker_->Open(open, opened))) << weight;
  }
  open.set_weight(1e6);
  EXPECT_TRUE(tracker_->Open(open, opened).ok());
}

// What is cancelled is gone, whether a worker ever came for it or not.
TEST_F(TrackerTest, CancelledRequestsLeaveAtOnce) {
  const std::string queue = Open();
  v1::MeasureRequest large = Measurement(1);
  large.set_workload(std::string(1 << 20, 'w'));
  const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  uint64_t acknowledged = 0;
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 10; ++i) {
      large.set_id(large.id() + 1);
      ASSERT_TRUE(Submit(queue, {large}).ok());
    }
    v1::CancelRequest cancel;
    cancel.set_queue(queue);
    cancel.set_all(true);
    v1::CancelResponse cancelled;
    ASSERT_TRUE(tracker_->Cancel(cancel, cancelled).ok());
    EXPECT_EQ(cancelled.cancelled(), 10u);
    for (const v1::MeasureResult& result : Results(queue, acknowledged)) acknowledged = result.sequence();
  }
  EXPECT_LT(mallinfo2().uordblks + mallinfo2().hblkhd, before + (2 << 20));
}

// Leases of an answer that is full go into the next one, and none is lost or told of twice.
TEST_F(TrackerTest, AnswersToLeaseHaveABound) {
  options_.max_answer_bytes = 3 << 20;
  Restart();
  const std::string queue = Open(), a = Register("a");
  std::vector<v1::MeasureRequest> requests;
  for (uint64_t id = 1; id <= 12; ++id) {
    requests.push_back(Measurement(id));
    requests.back().set_workload(std::string(1 << 20, 'w'));
  }
  ASSERT_TRUE(Submit(queue, requests).ok());
  // Three answers are lost on the way.
  for (int i = 0; i < 3; ++i) EXPECT_LT(Lease(a, 12, 0, 0)->response.ByteSizeLong(), size_t{5} << 20);
  std::map<uint64_t, int> told;
  uint64_t received = 0;
  for (int i = 0; i < 8; ++i) {
    const auto answer = Lease(a, 12, received, 0);
    EXPECT_LT(answer->response.ByteSizeLong(), size_t{5} << 20);
    received = answer->response.batch();
    for (const v1::LeaseGrant& grant : answer->response.grants()) ++told[grant.request().id()];
  }
  EXPECT_EQ(told.size(), 12u);
  for (const auto& [id, times] : told) EXPECT_EQ(times, 1) << id;
}

TEST_F(TrackerTest, TheListOfWorkersComesInPages) {
  options_.max_answer_bytes = 1000;
  Restart();
  for (int i = 0; i < 30; ++i) Register("worker" + std::to_string(100 + i));
  for (int i = 0; i < 300; ++i) Open();
  v1::ListWorkersRequest request;
  std::vector<std::string> workers;
  int pages = 0, queues = 0, models = 0;
  do {
    v1::ListWorkersResponse page;
    ASSERT_TRUE(tracker_->ListWorkers(request, page).ok());
    EXPECT_LT(page.ByteSizeLong(), 2000u);
    for (const v1::WorkerStatus& worker : page.workers()) workers.push_back(worker.name());
    queues += page.queues_size();
    models += page.models_size();
    request.set_page(page.next_page());
    ++pages;
  } while (!request.page().empty() && pages < 1000);
  EXPECT_EQ(workers.size(), 30u);
  EXPECT_TRUE(std::is_sorted(workers.begin(), workers.end()));
  EXPECT_EQ(queues, 300);
  EXPECT_EQ(models, 1);
  EXPECT_GT(pages, 3);
  request.set_page("x");
  v1::ListWorkersResponse page;
  EXPECT_EQ(tracker_->ListWorkers(request, page),
            absl::InvalidArgumentError("ListWorkersRequest.page is none that this tracker gave"));
}

// Devices that a worker did not register are nothing to remember.
TEST_F(TrackerTest, UnknownDevicesOfAWorkerAreIgnored) {
  const std::string queue = Open(), a = Register("a");
  v1::ReportRequest report;
  report.set_session(a);
  for (int i = 0; i < 60; ++i) {
    report.add_devices()->set_device("made up " + std::to_string(i));
    report.add_device_statistics()->set_device("made up " + std::to_string(i));
  }
  v1::ReportResponse response;
  ASSERT_TRUE(tracker_->Report(report, response).ok());
  const v1::ListWorkersResponse fleet = Fleet();
  EXPECT_EQ(fleet.workers(0).states_size(), 0);
  EXPECT_EQ(fleet.workers(0).rates_size(), 1);
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  EXPECT_EQ(Lease(a, 4000000000, 0, 0, {"made up 1"})->response.grants_size(), 0);
}

TEST_F(TrackerTest, AWorkerHasSoManyLeases) {
  options_.max_leases_per_worker = 3;
  Restart();
  const std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2, 3, 4, 5}).ok());
  EXPECT_EQ(Grants(a, 4000000000).size(), 3u);
  EXPECT_EQ(Grants(a, 4000000000).size(), 0u);
}

// A worker that renews for ever gets its requests taken away when they must have been answered.
TEST_F(TrackerTest, ALeaseHasALastMoment) {
  const std::string queue = Open(), a = Register("a");
  v1::MeasureRequest request = Measurement(1);
  request.set_build_timeout_seconds(5);
  request.set_run_timeout_seconds(2);
  ASSERT_TRUE(Submit(queue, {request}).ok());
  const uint64_t lease = Grants(a, 1).at(0).lease();
  int seconds = 0;
  while (Report(a, {}, {lease}).over().empty() && seconds < 1000) {
    Pass(std::chrono::seconds(1));
    Results(queue);
    ++seconds;
  }
  EXPECT_NEAR(seconds, 30 + 5 + 2 + 10, 2);  // twice a lease, its deadlines, and a restart of the runner
  const v1::ListWorkersResponse fleet = Fleet();
  EXPECT_EQ(fleet.workers(0).states(0).state(), v1::DEVICE_STATE_QUARANTINED);
  EXPECT_EQ(fleet.workers(0).states(0).text(),
            "the tracker: it did not answer lease " + std::to_string(lease) + " within the deadlines of its request");
  EXPECT_THAT(Grants(a, 1), testing::IsEmpty());
  const std::string b = Register("b");
  const auto grants = Grants(b, 1);
  ASSERT_EQ(grants.size(), 1u);
  EXPECT_EQ(grants[0].attempt(), 2u);
  Report(b, {{grants[0].lease(), Timed()}});
  EXPECT_EQ(Results(queue).size(), 1u);
}

TEST_F(TrackerTest, ABadOutcomeIsTheWorkersFault) {
  v1::MeasureResult none, no_number = Timed(), not_a_number = Timed(std::nan("")), fast = Timed(1e-12);
  no_number.mutable_timing()->set_number(0);
  const std::vector<std::pair<v1::MeasureResult, std::string>> bad = {
      {none, "it has neither a timing nor an error"},
      {no_number, "its timing has 0 launches"},
      {not_a_number, "Timing.samples is nan; its limits are 0 and 1e+18"},
      {Timed(-1), "Timing.samples is -1; its limits are 0 and 1e+18"},
      {fast, "a sample of its timing is 1e-06 us, where the device cannot be done before 2 us"}};
  for (const auto& [result, fault] : bad) {
    Restart();
    const std::string queue = Open();
    v1::RegisterRequest worker = Worker("evil");
    worker.mutable_devices(0)->mutable_facts()->set_flops(1e12);
    const std::string evil = Register(worker);
    std::vector<v1::MeasureRequest> requests = {Measurement(1), Measurement(2)};
    for (v1::MeasureRequest& request : requests) request.set_least_operations(2e6);
    ASSERT_TRUE(Submit(queue, requests).ok());
    auto grants = Grants(evil, 2);
    ASSERT_EQ(grants.size(), 2u);
    const std::string good = Register("good");
    Report(evil, {{grants[0].lease(), result}});
    EXPECT_TRUE(report_status_.ok());
    EXPECT_EQ(Results(queue).size(), 0u) << fault;
    EXPECT_EQ(Fleet().workers(0).states(0).text(), "the tracker: it gave a bad outcome: " + fault);
    // It gets nothing more, a new session or not, and what it had runs elsewhere.
    EXPECT_THAT(Grants(evil, 2), testing::IsEmpty());
    EXPECT_THAT(Grants(Register(worker), 2), testing::IsEmpty());
    grants = Grants(good, 2);
    EXPECT_EQ(grants.size(), 2u);
    for (const auto& grant : grants) Report(good, {{grant.lease(), Timed()}});
    EXPECT_EQ(Results(queue).size(), 2u);
    EXPECT_TRUE(Results(queue)[0].has_timing());
  }
}

TEST_F(TrackerTest, ANetworkThatAWorkerRanWasCompared) {
  v1::MeasureRequest request = Measurement(1);
  request.set_mode(v1::MEASURE_MODE_VERIFY);
  v1::MeasureResult result = Timed();
  result.mutable_timing()->clear_samples();
  EXPECT_EQ(FaultOfOutcome(request, result, nullptr), "");
  request.mutable_network();
  EXPECT_EQ(FaultOfOutcome(request, result, nullptr), "it ran a network and compared nothing");
  result.mutable_verification()->set_ok(false);
  EXPECT_EQ(FaultOfOutcome(request, result, nullptr), "");
  v1::MeasureResult failed;
  failed.mutable_error()->set_kind("run_crash");
  EXPECT_EQ(FaultOfOutcome(request, failed, nullptr), "");
}

// The only worker comes back after a while, then after twice as long; the candidate loses no attempt by it.
TEST_F(TrackerTest, AQuarantineEndsAndGrows) {
  const std::string queue = Open();
  std::string a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1}).ok());
  for (const int seconds : {60, 120, 240}) {
    const auto grants = Grants(a, 1);
    ASSERT_EQ(grants.size(), 1u);
    Report(a, {{grants[0].lease(), v1::MeasureResult()}});
    for (int i = 1; i < seconds; ++i) {
      Pass(std::chrono::seconds(1));
      Report(a, {});
      Results(queue);
      if (i + 1 < seconds) {
        ASSERT_THAT(Grants(a, 0), testing::IsEmpty());
      }
    }
    EXPECT_EQ(Fleet().workers(0).states_size(), 1);
    Pass(std::chrono::seconds(2));
    EXPECT_EQ(Fleet().workers(0).states_size(), 0);
  }
}

// An answer without end is cut, not kept.
TEST_F(TrackerTest, LongTextsOfOutcomesAreCut) {
  const std::string queue = Open(), a = Register("a");
  ASSERT_TRUE(SubmitIds(queue, {1, 2}).ok());
  const auto grants = Grants(a, 2);
  v1::MeasureResult compile, timed = Timed();
  compile.mutable_error()->set_kind("compile");
  compile.mutable_error()->set_stage("compile");
  compile.mutable_error()->set_text(std::string(20 << 20, 'x'));
  timed.set_compiler(std::string(20 << 20, 'x'));
  Report(a, {{grants[0].lease(), compile}, {grants[1].lease(), timed}});
  const auto results = Results(queue);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].error().kind(), "compile");
  EXPECT_LE(results[0].error().text().size(), 4096u);
  EXPECT_GE(results[0].error().text().size(), 4000u);
  EXPECT_LE(results[1].compiler().size(), 1024u);
}

}  // namespace
}  // namespace diapason
