// What peers send: fields without end, requests that come and go, workers that lie or never answer, tokens that take
// all.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/serialize.h"
#include "compiler/tensor/target.h"
#include "diapason/v1/measure.grpc.pb.h"
#include "diapason/v1/tracker.grpc.pb.h"
#include "diapason/v1/tuning.grpc.pb.h"
#include "tests/attacks/attack_fixture.h"
#include "worker/process/convert.h"

namespace diapason {
namespace {

using ::testing::HasSubstr;

class PeerAttack : public AttackTest {
 protected:
  template <typename Request, typename Response, typename Stub>
  static absl::Status Call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                           const Request& request, Response& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    return FromGrpc((stub.*method)(&context, request, &response));
  }
  using Measure = v1::Measure::Stub;
  using Workers = v1::Tracker::Stub;

  static v1::OpenRequest Opening(const std::string& name = "attack") {
    v1::OpenRequest open;
    open.mutable_protocol()->set_low(1);
    open.mutable_protocol()->set_high(1);
    open.set_name(name);
    return open;
  }
  static std::string Open(Measure& stub) {
    v1::OpenResponse opened;
    EXPECT_EQ(Call(stub, &Measure::Open, Opening(), opened), absl::OkStatus());
    return opened.queue();
  }
  static v1::MeasureRequest Request(uint64_t id, size_t bytes = 100) {
    v1::MeasureRequest request;
    request.set_id(id);
    request.set_workload(std::string(bytes, 'w'));
    request.set_schedule("s");
    request.set_target("cpu");
    request.set_device_model("attacked");
    return request;
  }
  static absl::Status Submit(Measure& stub, const std::string& queue, const v1::MeasureRequest& request) {
    v1::SubmitRequest submit;
    submit.set_queue(queue);
    *submit.add_requests() = request;
    v1::SubmitResponse submitted;
    return Call(stub, &Measure::Submit, submit, submitted);
  }
  // A worker whose device says that it is of this model.
  static v1::RegisterRequest Registration(const std::string& name, const v1::DeviceFacts& facts) {
    v1::RegisterRequest worker;
    worker.mutable_protocol()->set_low(1);
    worker.mutable_protocol()->set_high(1);
    worker.set_worker_id(name);
    worker.set_name(name);
    v1::DeviceDescription& device = *worker.add_devices();
    device.set_name("cpu:0");
    device.set_target("cpu");
    *device.mutable_facts() = facts;
    device.set_state(v1::DEVICE_STATE_READY);
    return worker;
  }
  // Of a processor whose model is the one that Request asks for.
  static v1::DeviceFacts AttackedFacts() {
    v1::DeviceFacts facts;
    ToProto(DefaultFacts(Target::Parse("cpu").value()), facts);
    facts.set_model("attacked");
    return facts;
  }
  // A job that takes little to prepare and long to run.
  static v1::TuneSpec Gemm() {
    v1::TuneSpec spec;
    spec.set_model("gemm");
    for (const auto& [key, value] : {std::pair{"m", "32"}, {"n", "48"}, {"k", "64"}})
      (*spec.mutable_extra())[key] = value;
    spec.set_batch(1);
    spec.set_layout("NHWC");
    spec.set_dtype("float32");
    spec.set_target("cpu -num-cores=1");
    spec.set_trials(1000);
    spec.set_trials_per_round(16);
    spec.set_objective("sum");
    spec.set_repeat(3);
    spec.set_number(1);
    spec.set_build_timeout_seconds(30);
    spec.set_run_timeout_seconds(10);
    spec.set_weight(1);
    return spec;
  }
  // Facts of the first device that the tracker knows.
  static v1::DeviceFacts FactsOfTheFleet(Workers& stub) {
    v1::ListWorkersResponse fleet;
    EXPECT_EQ(Call(stub, &Workers::ListWorkers, v1::ListWorkersRequest(), fleet), absl::OkStatus());
    return fleet.workers_size() > 0 && fleet.workers(0).devices_size() > 0 ? fleet.workers(0).devices(0).facts()
                                                                           : v1::DeviceFacts();
  }

  CliResult FleetStatus(const std::string& tracker) { return Cli({"fleet", "status", "--tracker", tracker, "--json"}); }
};

// Plays a worker until it is destroyed: `answer` is called with each lease, and says what is reported; nothing: it is
// renewed for ever. After an answer it comes again by another name.
class FalseWorker {
 public:
  using Answer = std::function<std::optional<v1::MeasureResult>(const v1::LeaseGrant&)>;
  FalseWorker(const std::shared_ptr<grpc::Channel>& channel, const v1::DeviceFacts& facts, std::string name,
              Answer answer)
      : stub_(v1::Tracker::NewStub(channel)),
        facts_(facts),
        name_(std::move(name)),
        answer_(std::move(answer)),
        thread_([this] { Loop(); }) {}
  ~FalseWorker() {
    stop_ = true;
    thread_.join();
  }
  int leased() const { return leased_; }
  int sessions() const { return sessions_; }

 private:
  void Loop() {
    while (!stop_) {
      const std::string name = name_ + std::to_string(++sessions_);
      v1::RegisterRequest worker;
      worker.mutable_protocol()->set_high(1);
      worker.set_worker_id(name);
      worker.set_name(name);
      v1::DeviceDescription& device = *worker.add_devices();
      device.set_name("cpu:0");
      device.set_target("cpu");
      *device.mutable_facts() = facts_;
      device.set_state(v1::DEVICE_STATE_READY);
      v1::RegisterResponse session;
      grpc::ClientContext context;
      if (stub_->Register(&context, worker, &session).ok()) Serve(session.session());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  void Serve(const std::string& session) {
    uint64_t received = 0;
    std::set<uint64_t> held;
    while (!stop_) {
      v1::LeaseRequest ask;
      ask.set_session(session);
      ask.set_received(received);
      ask.set_max_wait_ms(50);
      ask.add_capacity()->set_device("cpu:0");
      ask.mutable_capacity(0)->set_free(1000);
      v1::LeaseResponse leases;
      grpc::ClientContext asking;
      if (!stub_->Lease(&asking, ask, &leases).ok()) return;
      received = leases.batch();
      v1::ReportRequest report;
      report.set_session(session);
      bool answered = false;
      for (const v1::LeaseGrant& grant : leases.grants()) {
        ++leased_;
        const std::optional<v1::MeasureResult> result = answer_(grant);
        if (result.has_value()) {
          answered = true;
          report.add_outcomes()->set_lease(grant.lease());
          *report.mutable_outcomes(report.outcomes_size() - 1)->mutable_result() = *result;
        } else {
          held.insert(grant.lease());
        }
      }
      for (const uint64_t lease : held) report.add_renew(lease);
      v1::ReportResponse reported;
      grpc::ClientContext reporting;
      if (!stub_->Report(&reporting, report, &reported).ok()) return;
      for (const uint64_t lease : reported.over()) held.erase(lease);
      if (answered) return;  // perhaps in quarantine: comes again by another name
    }
  }

  const std::unique_ptr<v1::Tracker::Stub> stub_;
  const v1::DeviceFacts facts_;
  const std::string name_;
  const Answer answer_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> leased_ = 0, sessions_ = 0;
  std::thread thread_;
};

TEST_F(PeerAttack, FieldsWithoutEndAreRefusedByName) {
  auto tracker = Tracker();
  ASSERT_NE(tracker->Address(), "") << tracker->err();
  const auto workers = v1::Tracker::NewStub(Dial(tracker->Address()));
  const auto measure = v1::Measure::NewStub(Dial(tracker->Address()));
  constexpr size_t kLong = 40000;  // within what a message may have
  v1::RegisterRequest worker = Registration(std::string(kLong, 'n'), AttackedFacts());
  v1::RegisterResponse registered;
  EXPECT_EQ(Call(*workers, &Workers::Register, worker, registered),
            absl::InvalidArgumentError("RegisterRequest.worker_id has 40000 bytes, more than the limit of 256"));
  v1::OpenResponse opened;
  EXPECT_EQ(Call(*measure, &Measure::Open, Opening(std::string(kLong, 'n')), opened),
            absl::InvalidArgumentError("OpenRequest.name has 40000 bytes, more than the limit of 256"));
  const std::string queue = Open(*measure);
  v1::MeasureRequest request = Request(1);
  request.mutable_timing()->set_repeat(2147483647);
  EXPECT_EQ(Submit(*measure, queue, request),
            absl::InvalidArgumentError("TimingOptions.repeat is 2147483647; its limits are 0 and 1000"));
  // A device whose state is told at length.
  const v1::DeviceFacts facts = AttackedFacts();
  ASSERT_EQ(Call(*workers, &Workers::Register, Registration("w", facts), registered), absl::OkStatus());
  v1::ReportRequest report;
  report.set_session(registered.session());
  report.add_devices()->set_device("cpu:0");
  report.mutable_devices(0)->set_text(std::string(kLong, 'x'));
  v1::ReportResponse reported;
  EXPECT_EQ(Call(*workers, &Workers::Report, report, reported),
            absl::InvalidArgumentError("DeviceStatus.text has 40000 bytes, more than the limit of 8192"));
  const CliResult status = FleetStatus(tracker->Address());
  EXPECT_EQ(status.code, 0) << status.err;
}

// Each is within the limit of a request, and all together are past that of a message.
TEST_F(PeerAttack, ManyLargeLeasesComeInSeveralAnswers) {
  auto tracker = Tracker();
  ASSERT_NE(tracker->Address(), "") << tracker->err();
  const auto workers = v1::Tracker::NewStub(Dial(tracker->Address()));
  const auto measure = v1::Measure::NewStub(Dial(tracker->Address()));
  const std::string queue = Open(*measure);
  for (uint64_t id = 1; id <= 6; ++id) {
    ASSERT_EQ(Submit(*measure, queue, Request(id, 15 << 20)), absl::OkStatus()) << id;
  }
  const v1::DeviceFacts facts = AttackedFacts();
  v1::RegisterResponse session;
  ASSERT_EQ(Call(*workers, &Workers::Register, Registration("w", facts), session), absl::OkStatus());
  std::set<uint64_t> leased;
  v1::LeaseRequest ask;
  ask.set_session(session.session());
  ask.add_capacity()->set_device("cpu:0");
  ask.mutable_capacity(0)->set_free(100);
  for (int i = 0; i < 6; ++i) {
    v1::LeaseResponse leases;
    ASSERT_EQ(Call(*workers, &Workers::Lease, ask, leases), absl::OkStatus());
    ask.set_received(leases.batch());
    for (const v1::LeaseGrant& grant : leases.grants()) leased.insert(grant.request().id());
  }
  EXPECT_EQ(leased.size(), 6u);
}

TEST_F(PeerAttack, WhatIsSubmittedAndCancelledLeavesNothing) {
  auto tracker = Tracker();
  ASSERT_NE(tracker->Address(), "") << tracker->err();
  const auto measure = v1::Measure::NewStub(Dial(tracker->Address()));
  const std::string queue = Open(*measure);
  uint64_t acknowledged = 0;
  for (uint64_t id = 1; id <= 40; ++id) {
    ASSERT_EQ(Submit(*measure, queue, Request(id, 14 << 20)), absl::OkStatus()) << id;
    v1::CancelRequest cancel;
    cancel.set_queue(queue);
    cancel.set_all(true);
    v1::CancelResponse cancelled;
    ASSERT_EQ(Call(*measure, &Measure::Cancel, cancel, cancelled), absl::OkStatus());
    EXPECT_EQ(cancelled.cancelled(), 1u);
    v1::NextRequest next;
    next.set_queue(queue);
    next.set_acknowledged(acknowledged);
    v1::NextResponse results;
    ASSERT_EQ(Call(*measure, &Measure::Next, next, results), absl::OkStatus());
    for (const auto& result : results.results()) acknowledged = result.sequence();
  }
  EXPECT_LT(ResidentBytes(tracker->pid()), int64_t{350} << 20);  // of 560 MiB that were sent
  const auto size = [&](const std::string& name) {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(Path(name), none);
    return none ? 0 : bytes;
  };
  EXPECT_LT(size("state.db"), uintmax_t{100} << 20);
  EXPECT_LT(size("state.db-wal"), uintmax_t{150} << 20);
}

// One token's queues leave room for others, and none is more urgent than people may say.
TEST_F(PeerAttack, OneTokenCannotTakeAllQueues) {
  std::ofstream(Path("two_tokens")) << "submitter alices-token-00001 alice\nsubmitter bobs-token-0000001 bob\n";
  std::filesystem::permissions(Path("two_tokens"),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  auto tracker = Tracker(OwnLoopback(), {"--tokens", Path("two_tokens")});
  ASSERT_NE(tracker->Address(), "") << tracker->err();
  const auto as = [&](const std::string& token) {
    auto credentials = std::make_shared<ClientCredentials>();
    credentials->token = token;
    return v1::Measure::NewStub(MakeChannel(tracker->Address(), credentials));
  };
  const auto alice = as("alices-token-00001"), bob = as("bobs-token-0000001");
  v1::OpenRequest urgent = Opening();
  urgent.set_priority(2147483647);
  v1::OpenResponse opened;
  EXPECT_EQ(Call(*alice, &Measure::Open, urgent, opened),
            absl::InvalidArgumentError("OpenRequest.priority is 2147483647; its limits are -1000 and 1000"));
  absl::Status status;
  int queues = 0;
  while (status.ok() && queues < 1100) {
    status = Call(*alice, &Measure::Open, Opening(), opened);
    if (status.ok()) ++queues;
  }
  EXPECT_EQ(queues, 256);
  EXPECT_EQ(status,
            absl::ResourceExhaustedError("the token of 'alice' has 256 queues and may open no more; close some"));
  EXPECT_EQ(Call(*bob, &Measure::Open, Opening(), opened), absl::OkStatus());
}

// As somebody who runs the tracker, or a service with one of its own, says what that is.
TEST_F(PeerAttack, QuotasOfATokenAreOptions) {
  const std::vector<std::string> quotas = {
      "--tokens", Tokens(), "--max-queues-per-token", "2", "--max-pending-per-token", "3", "--max-stored-mib-per-token",
      "1"};
  for (const bool service : {false, true}) {
    auto process = service ? Serve(quotas) : Tracker(OwnLoopback(), quotas);
    ASSERT_NE(process->Address(), "") << process->err();
    const auto stub = v1::Measure::NewStub(Dial(process->Address(), "submitter"));
    const std::string first = Open(*stub), second = Open(*stub);
    v1::OpenResponse opened;
    EXPECT_EQ(Call(*stub, &Measure::Open, Opening(), opened),
              absl::ResourceExhaustedError("the token of 'submitter' has 2 queues and may open no more; close some"));
    EXPECT_EQ(Submit(*stub, first, Request(1)), absl::OkStatus());
    const absl::Status bytes = Submit(*stub, second, Request(1, 1 << 20));
    EXPECT_TRUE(absl::IsResourceExhausted(bytes)) << bytes;
    EXPECT_THAT(std::string(bytes.message()), HasSubstr(" bytes of requests and results and take 1048576"));
    EXPECT_EQ(Submit(*stub, first, Request(2)), absl::OkStatus());
    EXPECT_EQ(Submit(*stub, second, Request(2)), absl::OkStatus());
    EXPECT_EQ(Submit(*stub, second, Request(3)),
              absl::ResourceExhaustedError("the queues of the token of 'submitter' hold 3 requests and take 3"));
    // Another token has its own.
    const auto other = v1::Measure::NewStub(Dial(process->Address(), "admin"));
    EXPECT_EQ(Submit(*other, Open(*other), Request(1)), absl::OkStatus());
  }
}

// Whatever calls and ways it tries, one token's jobs leave the service's places to others; a restart forgets none of
// them.
TEST_F(PeerAttack, OneTokenCannotTakeAllJobs) {
  std::ofstream(Path("two_tokens")) << "submitter alices-token-00001 alice\nsubmitter bobs-token-0000001 bob\n";
  std::filesystem::permissions(Path("two_tokens"),
                               std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  using Jobs = v1::Tuning::Stub;
  v1::SubmitJobRequest submit;
  *submit.mutable_spec() = Gemm();
  const absl::Status full =
      absl::ResourceExhaustedError("the token of 'alice' has 3 unfinished jobs and may have 3; cancel some, or wait");
  for (const bool restarted : {false, true}) {
    auto service =
        Serve({"--tokens", Path("two_tokens"), "--max-queued-jobs", "5", "--max-unfinished-jobs-per-token", "3"});
    ASSERT_NE(service->Address(), "") << service->err();
    const auto as = [&](const std::string& token) {
      auto credentials = std::make_shared<ClientCredentials>();
      credentials->token = token;
      return v1::Tuning::NewStub(MakeChannel(service->Address(), credentials));
    };
    const auto alice = as("alices-token-00001"), bob = as("bobs-token-0000001");
    v1::SubmitJobResponse submitted;
    if (!restarted) {
      // Many at once, so that each may see the room that the others take.
      std::atomic<int> taken = 0;
      std::vector<std::thread> callers;
      for (int i = 0; i < 8; ++i) {
        callers.emplace_back([&, i] {
          v1::SubmitJobRequest one = submit;
          one.set_key("alice" + std::to_string(i));
          v1::SubmitJobResponse answer;
          const absl::Status status = Call(*alice, &Jobs::Submit, one, answer);
          if (status.ok()) ++taken;
          EXPECT_TRUE(status.ok() || status == full) << status;
        });
      }
      for (std::thread& caller : callers) caller.join();
      EXPECT_EQ(taken, 3);
      submit.set_key("bob");
      ASSERT_EQ(Call(*bob, &Jobs::Submit, submit, submitted), absl::OkStatus());
      v1::CancelJobRequest cancel;
      cancel.set_job(submitted.job());
      v1::Job job;
      ASSERT_EQ(Call(*bob, &Jobs::CancelJob, cancel, job), absl::OkStatus());
      ASSERT_TRUE(WaitFor([&] {
        v1::ResumeJobRequest resume;
        resume.set_job(submitted.job());
        return Call(*alice, &Jobs::ResumeJob, resume, job) == full;  // and no job of hers by another way
      }));
    }
    submit.set_key("one more");
    EXPECT_EQ(Call(*alice, &Jobs::Submit, submit, submitted), full);
    std::ofstream(Path("token")) << "bobs-token-0000001\n";
    std::filesystem::permissions(Path("token"),
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    std::map<std::string, int> unfinished;
    const auto list =
        Cli({"jobs", "list", "--service", service->Address(), "--token-file", Path("token"), "--json"}).json();
    for (const auto& job : list["jobs"])
      if (job["state"] == "queued" || job["state"] == "running") ++unfinished[job["owner"]];
    EXPECT_EQ(unfinished, (std::map<std::string, int>{{"alice", 3}}));
    EXPECT_THAT(Cli({"jobs", "list", "--service", service->Address(), "--token-file", Path("token")}).out,
                HasSubstr("  alice\n"));
    if (!restarted) service->Kill();
  }
}

// A worker that lies in every way it can costs the job nothing but time.
TEST_F(PeerAttack, BadOutcomesDoNotEndAJob) {
  auto tracker = Tracker();
  ASSERT_NE(tracker->Address(), "") << tracker->err();
  auto honest = Worker(tracker->Address(), "honest");
  const auto stub = v1::Tracker::NewStub(Dial(tracker->Address()));
  ASSERT_TRUE(WaitFor([&] { return FactsOfTheFleet(*stub).flops() > 0; })) << honest->err();
  std::atomic<int> lies = 0;
  const auto lie = [&](const v1::LeaseGrant&) -> std::optional<v1::MeasureResult> {
    v1::MeasureResult result;
    v1::Timing& timing = *result.mutable_timing();
    timing.set_number(10);
    timing.add_samples(1e-3);
    switch (lies++ % 5) {
      case 0: timing.set_number(0); break;
      case 1: timing.set_samples(0, std::nan("")); break;
      case 2: timing.set_samples(0, 1e-12); break;
      case 3: result.clear_timing(); break;
      case 4:
        timing.clear_samples();
        result.set_compiler(std::string(3 << 20, 'x'));
        break;
    }
    return result;
  };
  FalseWorker liar(Dial(tracker->Address()), FactsOfTheFleet(*stub), "liar", lie);
  const CliResult run = Cli(Tune(tracker->Address(), "12"));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_GT(lies, 0);
  EXPECT_GT(liar.sessions(), 1);
  std::istringstream lines(Cli({"history", "export", Path("h.db")}).out);
  int timed = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    if (!json.contains("decision_hash")) continue;
    EXPECT_LT(line.size(), 100000u);
    if (!json.contains("timing")) continue;
    ++timed;
    for (const double sample : json["timing"]["samples"]) EXPECT_GT(sample, 1e-8) << line;
  }
  EXPECT_GT(timed, 0);
  EXPECT_LT(std::filesystem::file_size(Path("h.db")), uintmax_t{10} << 20);
}

// A program of somebody who may submit reads what lies behind its tensor on the worker's device: memory of others.
TEST_F(PeerAttack, AProgramThatReadsBeyondItsTensorsIsNotRun) {
  auto tracker = Tracker();
  ASSERT_NE(tracker->Address(), "") << tracker->err();
  const auto worker = Worker(tracker->Address(), "worker", {"--metrics", "127.0.0.1:0"});
  const auto runs = [&] {
    return Number(Fetch(MetricsAddress(*worker)), "diapason_worker_runs_total{device=\"cpu:0\"}");
  };
  ASSERT_TRUE(worker->Says("worker measures on"));
  ASSERT_TRUE(WaitFor([&] { return runs() == 1; }))
      << worker->err();  // of the reference kernel, the next follows in minutes
  const auto measure = v1::Measure::NewStub(Dial(tracker->Address()));
  const std::string queue = Open(*measure);
  for (uint64_t id = 1; id <= 2; ++id) {
    const int64_t beyond = id == 1 ? 1 << 20 : 0;
    DagBuilder b;
    const int x = b.Placeholder("x", {16});
    const int y = b.Compute("y", {16}, [&](const DagBuilder::Vars& i) { return b.At(x, {Add(i[0], IntImm(beyond))}); });
    v1::MeasureRequest request = Request(id);
    request.set_workload(SerializeDag(b.Build({y}).value()));
    request.set_schedule(SerializeSchedule(Schedule()));
    request.clear_device_model();
    request.mutable_timing()->set_repeat(1);
    request.mutable_timing()->set_min_repeat_ms(0.1);
    ASSERT_EQ(Submit(*measure, queue, request), absl::OkStatus());
    v1::NextRequest next;
    next.set_queue(queue);
    next.set_acknowledged(id - 1);
    next.set_max_wait_ms(15000);
    v1::NextResponse results;
    ASSERT_EQ(Call(*measure, &Measure::Next, next, results), absl::OkStatus());
    ASSERT_EQ(results.results_size(), 1) << worker->err();
    if (id == 2) {
      EXPECT_TRUE(results.results(0).has_timing()) << results.DebugString();
      EXPECT_EQ(runs(), 2);
      continue;
    }
    EXPECT_EQ(results.results(0).error().kind(), "instantiation") << results.DebugString();
    EXPECT_EQ(results.results(0).error().text(),
              "stage 'y' reads 'x' at index 0 = i0 + 1048576, which is not proven to be from 0 to 15");
    EXPECT_EQ(runs(), 1);
  }
}

// What it keeps goes to another worker when its request's deadlines are over.
TEST_F(PeerAttack, AWorkerThatOnlyRenewsHoldsUpAJobForAMoment) {
  auto tracker = Tracker();
  ASSERT_NE(tracker->Address(), "") << tracker->err();
  const auto measure = v1::Measure::NewStub(Dial(tracker->Address()));
  const std::string queue = Open(*measure);
  for (uint64_t id = 1; id <= 8; ++id) {
    v1::MeasureRequest request = Request(id);
    request.set_build_timeout_seconds(0.5);
    request.set_run_timeout_seconds(0.5);
    ASSERT_EQ(Submit(*measure, queue, request), absl::OkStatus());
  }
  const v1::DeviceFacts facts = AttackedFacts();
  FalseWorker hoarder(Dial(tracker->Address()), facts, "hoarder",
                      [](const v1::LeaseGrant&) -> std::optional<v1::MeasureResult> { return std::nullopt; });
  ASSERT_TRUE(WaitFor([&] { return hoarder.leased() >= 8; }));
  const auto began = std::chrono::steady_clock::now();
  FalseWorker honest(Dial(tracker->Address()), facts, "honest", [](const v1::LeaseGrant&) {
    v1::MeasureResult result;
    result.mutable_timing()->set_number(1);
    result.mutable_timing()->add_samples(1e-3);
    return std::optional<v1::MeasureResult>(result);
  });
  int timed = 0;
  v1::NextRequest next;
  next.set_queue(queue);
  next.set_max_wait_ms(1000);
  while (timed < 8 && std::chrono::steady_clock::now() - began < std::chrono::seconds(40)) {
    v1::NextResponse results;
    ASSERT_EQ(Call(*measure, &Measure::Next, next, results), absl::OkStatus());
    for (const v1::MeasureResult& result : results.results()) {
      next.set_acknowledged(result.sequence());
      timed += result.has_timing() ? 1 : 0;
    }
  }
  EXPECT_EQ(timed, 8);  // the first lease had 4 s of grace, 1 s of deadlines and 10 s to start a runner again
}

// Jobs whose options are as long as they may be are listed, and go when they have ended.
TEST_F(PeerAttack, ManyLargeJobsAreListedAndDeleted) {
  auto service = Serve({"--tokens", Tokens()});
  ASSERT_NE(service->Address(), "") << service->err();
  using Jobs = v1::Tuning::Stub;
  const auto stub = v1::Tuning::NewStub(Dial(service->Address(), "submitter"));
  const auto reader = v1::Tuning::NewStub(Dial(service->Address(), "reader"));
  v1::SubmitJobRequest submit;
  v1::TuneSpec& spec = *submit.mutable_spec();
  spec = Gemm();
  spec.set_tasks(std::string(40000, '1'));
  submit.set_key("long");
  v1::SubmitJobResponse submitted;
  EXPECT_EQ(Call(*stub, &Jobs::Submit, submit, submitted),
            absl::InvalidArgumentError("TuneSpec.tasks has 40000 bytes, more than the limit of 16384"));
  spec.clear_tasks();
  while (spec.tasks().size() < 16000) spec.mutable_tasks()->append("1,");
  spec.mutable_tasks()->append("1");
  std::vector<int64_t> ids;
  for (int i = 0; i < 70; ++i) {
    submit.set_key("job" + std::to_string(i));
    ASSERT_EQ(Call(*stub, &Jobs::Submit, submit, submitted), absl::OkStatus());
    ids.push_back(submitted.job());
  }
  std::set<int64_t> listed;
  v1::ListJobsRequest list;
  do {
    v1::ListJobsResponse page;
    ASSERT_EQ(Call(*reader, &Jobs::ListJobs, list, page), absl::OkStatus());
    for (const v1::Job& job : page.jobs()) EXPECT_TRUE(listed.insert(job.id()).second);
    list.set_before(page.next());
  } while (list.before() > 0);
  EXPECT_EQ(listed, std::set<int64_t>(ids.begin(), ids.end()));

  v1::DeleteJobRequest erase;
  erase.set_job(ids[0]);
  v1::DeleteJobResponse erased;
  EXPECT_TRUE(absl::IsPermissionDenied(Call(*reader, &Jobs::DeleteJob, erase, erased)));
  EXPECT_EQ(Call(*stub, &Jobs::DeleteJob, erase, erased),
            absl::FailedPreconditionError("job " + std::to_string(ids[0]) + " has not ended; `diapason jobs cancel " +
                                          std::to_string(ids[0]) + "` ends it"));
  for (const int64_t id : ids) {
    v1::CancelJobRequest cancel;
    cancel.set_job(id);
    v1::Job job;
    ASSERT_EQ(Call(*stub, &Jobs::CancelJob, cancel, job), absl::OkStatus());
  }
  ASSERT_TRUE(WaitFor([&] {
    v1::DeleteJobRequest last;
    last.set_job(ids[0]);
    return Call(*stub, &Jobs::DeleteJob, last, erased).ok();
  }));
  std::ofstream(Path("token")) << Token("submitter") << "\n";
  std::filesystem::permissions(Path("token"), std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::vector<std::string> args = {"jobs", "delete", "--service", service->Address(), "--token-file", Path("token")};
  for (const int64_t id : ids) {
    WaitFor([&] {
      v1::GetJobRequest get;
      get.set_job(id);
      v1::Job job;
      return !Call(*stub, &Jobs::GetJob, get, job).ok() || job.state() == v1::JOB_STATE_CANCELLED;
    });
    if (id != ids[0]) args.push_back(std::to_string(id));  // that one is gone already
  }
  const CliResult deleted = Cli(args);
  EXPECT_EQ(deleted.code, 0) << deleted.err;
  v1::ListJobsResponse none;
  ASSERT_EQ(Call(*reader, &Jobs::ListJobs, v1::ListJobsRequest(), none), absl::OkStatus());
  EXPECT_EQ(none.jobs_size(), 0);
}

}  // namespace
}  // namespace diapason
