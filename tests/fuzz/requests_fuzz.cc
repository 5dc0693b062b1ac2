// Measurement requests from anywhere: what a tracker takes, and what a builder makes of it up to the source text.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "compiler/tensor/accesses.h"
#include "compiler/tensor/interpret.h"
#include "compiler/tensor/serialize.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"
#include "scheduler/space.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/programs.h"
#include "worker/process/convert.h"
#include "worker/process/limits.h"
#include "worker/tracker/store.h"
#include "worker/tracker/tracker.h"

namespace diapason {
namespace {

// Small, so that what is let through is lowered quickly.
constexpr RequestLimits kLimits{
    .bytes = 1 << 16, .nodes = 2000, .steps = 64, .iterations = 1 << 24, .tensor_bytes = 1 << 26};

constexpr int64_t kMaxEvaluated = 1 << 12;

v1::RegisterRequest Worker() {
  v1::RegisterRequest request;
  request.mutable_protocol()->set_low(kLowestProtocol);
  request.mutable_protocol()->set_high(kHighestProtocol);
  request.set_worker_id("w");
  request.set_name("w");
  v1::DeviceDescription& device = *request.add_devices();
  device.set_name("cpu:0");
  device.set_target("cpu");
  ToProto(DefaultFacts(Target::Parse("cpu").value()), *device.mutable_facts());
  device.mutable_facts()->set_model("model");
  device.set_state(v1::DEVICE_STATE_READY);
  return request;
}

// What is taken is leased once and its outcome fetched once.
void Track(const v1::MeasureRequest& measurement) {
  const auto now = std::chrono::steady_clock::time_point() + std::chrono::hours(1);
  TrackerOptions options;
  options.now = [now] { return now; };
  Tracker tracker(options);
  v1::OpenRequest open;
  *open.mutable_protocol() = Worker().protocol();
  v1::OpenResponse opened;
  FUZZ_EXPECT(tracker.Open(open, opened).ok());
  v1::SubmitRequest submit;
  submit.set_queue(opened.queue());
  *submit.add_requests() = measurement;
  v1::SubmitResponse submitted;
  if (!tracker.Submit(submit, submitted).ok()) return;
  v1::RegisterResponse registered;
  FUZZ_EXPECT(tracker.Register(Worker(), registered).ok());
  v1::LeaseRequest lease;
  lease.set_session(registered.session());
  v1::DeviceCapacity& capacity = *lease.add_capacity();
  capacity.set_device("cpu:0");
  capacity.set_free(1);
  v1::ReportRequest report;
  report.set_session(registered.session());
  tracker.Lease(lease, [&report](absl::Status status, v1::LeaseResponse response) {
    FUZZ_EXPECT(status.ok());
    for (const v1::LeaseGrant& grant : response.grants()) {
      v1::LeaseOutcome& outcome = *report.add_outcomes();
      outcome.set_lease(grant.lease());
      outcome.mutable_result()->set_id(grant.request().id());
      outcome.mutable_result()->mutable_error()->set_kind("compile");
    }
  });
  v1::ReportResponse reported;
  FUZZ_EXPECT(tracker.Report(report, reported).ok());
  v1::NextRequest next;
  next.set_queue(opened.queue());
  tracker.Next(next, [&report](absl::Status status, v1::NextResponse response) {
    FUZZ_EXPECT(status.ok() && response.results_size() == report.outcomes_size());
  });
  tracker.Shutdown();
}

// What is proven to read only what is there does so, which the sanitizer sees.
void Evaluate(const ComputeDag& dag) {
  int64_t work = 0;
  for (const Stage& stage : dag.stages())
    work += stage.placeholder ? stage.elements() : stage.elements() * stage.terms();
  if (work > kMaxEvaluated) return;
  std::map<int, Array> inputs;
  for (int id : dag.inputs()) {
    const Stage& stage = dag.stage(id);
    Array& values = inputs.emplace(id, Array(stage.dtype, stage.shape())).first->second;
    for (int64_t i = 0; i < values.elements() && !IsFloat(stage.dtype); ++i)
      values.set_int(i, i % 2 == 0 ? stage.valid_min : stage.valid_max);
  }
  (void)Interpret(dag, inputs);
}

// A worker's device as it registers it: with facts that are let through, spaces can be made.
void MakeSpaces(const v1::DeviceDescription& device) {
  const absl::StatusOr<DeviceFacts> facts = CheckedFacts(device);
  if (!facts.ok()) return;
  const Target target = Target::Parse(device.target()).value();
  if (target.kind == TargetKind::kCpu && target.num_cores > facts->num_cores) return;
  (void)DefaultSchedule(FuzzDags().front().dag, target, *facts);
}

void Build(const v1::MeasureRequest& request) {
  const absl::StatusOr<ComputeDag> dag = ParseDag(request.workload());
  const absl::StatusOr<Schedule> schedule = ParseSchedule(request.schedule());
  const absl::StatusOr<Target> target = Target::Parse(request.target());
  if (!dag.ok() || !CheckDag(*dag, kLimits).ok()) return;
  const std::string bytes = SerializeDag(*dag);
  const absl::StatusOr<ComputeDag> again = ParseDag(bytes);
  FUZZ_EXPECT(again.ok() && SerializeDag(*again) == bytes && again->workload_key() == dag->workload_key());
  if (!CheckAccesses(*dag).ok()) return;
  Evaluate(*dag);
  if (!schedule.ok() || !CheckSchedule(*schedule, kLimits).ok() || !target.ok()) return;
  LowerAndPrint(*dag, *schedule, *target);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const NamedDag& dag : FuzzDags()) {
    for (const std::string& target : FuzzTargets()) {
      for (const Schedule& schedule : GoodSchedules(dag.dag, target)) {
        v1::MeasureRequest request;
        request.set_id(1);
        request.set_workload(SerializeDag(dag.dag));
        request.set_schedule(SerializeSchedule(schedule));
        request.set_target(target);
        request.mutable_timing()->set_repeat(3);
        seeds.push_back(request.SerializeAsString());
      }
    }
  }
  for (const std::string& target : FuzzTargets()) {
    v1::DeviceDescription device;
    device.set_name("device:0");
    device.set_target(target);
    ToProto(DefaultFacts(Target::Parse(target).value()), *device.mutable_facts());
    seeds.push_back(device.SerializeAsString());
  }
  return seeds;
}

}  // namespace diapason

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  google::protobuf::SetLogHandler(nullptr);  // it would tell of each text that is no UTF-8
  if (diapason::v1::DeviceDescription device; device.ParseFromArray(data, static_cast<int>(size)))
    diapason::MakeSpaces(device);
  diapason::v1::MeasureRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  diapason::Track(request);
  diapason::Build(request);
  return 0;
}
