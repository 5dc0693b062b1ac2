#include "worker/pipeline/runners.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/serialize.h"
#include "worker/pipeline/network_builds.h"
#include "worker/process/convert.h"

namespace diapason::pipeline {
namespace {

// Of a run's deadline; the rest is for loading and warming up.
constexpr double kTimingShare = 0.8;

void AddStages(const v1::RunStages& of_run, v1::RunStages& total) {
  total.set_load_seconds(total.load_seconds() + of_run.load_seconds());
  total.set_fill_seconds(total.fill_seconds() + of_run.fill_seconds());
  total.set_first_run_seconds(total.first_run_seconds() + of_run.first_run_seconds());
  total.set_timing_seconds(total.timing_seconds() + of_run.timing_seconds());
  total.set_stopped_early_seconds(total.stopped_early_seconds() + of_run.stopped_early_seconds());
  total.set_check_seconds(total.check_seconds() + of_run.check_seconds());
  total.set_verify_seconds(total.verify_seconds() + of_run.verify_seconds());
  total.set_stopped_early(total.stopped_early() + of_run.stopped_early());
}

// Small, so that it is built and run in no time anywhere: 65,536 numbers, doubled.
const std::string& ProbeWorkload() {
  static const std::string workload = [] {
    constexpr int64_t kElements = 1 << 16;
    DagBuilder b;
    int x = b.Placeholder("x", {kElements});
    int y =
        b.Compute("y", {kElements}, [&](const DagBuilder::Vars& i) { return Add(b.At(x, {i[0]}), b.At(x, {i[0]})); });
    return SerializeDag(b.Build({y}).value());
  }();
  return workload;
}

// The job of a runner that was lost in this stage.
void FailLost(Jobs& jobs, MeasureStage stage, double timeout, const JobPtr& job, const SlotEvent& loss) {
  const bool loading = stage == MeasureStage::kLoad;
  std::string text = "runner: " + loss.text;
  switch (loss.loss) {
    case LossKind::kDeadline:
      text = WithDetail("not finished within " + SecondsText(timeout), loss.text);
      if (stage == MeasureStage::kRun) return jobs.Fail(job, ErrorKind::kRunTimeout, stage, text);
      // Nothing of the candidate was running, though loading it may be what hangs.
      job->result.set_runner_lost(loading);
      return jobs.Fail(job, ErrorKind::kInfrastructure, stage,
                       loading ? text : WithDetail("the reference implementation did not finish in time", loss.text));
    case LossKind::kCrash: return jobs.Fail(job, ErrorKind::kRunCrash, stage, text);
    case LossKind::kOutOfMemory: return jobs.Fail(job, ErrorKind::kOutOfMemory, stage, text);
    case LossKind::kKilled:
      job->result.set_runner_lost(true);
      return jobs.Fail(job, ErrorKind::kInfrastructure, stage, text);
  }
}

}  // namespace

void Runners::Add(std::unique_ptr<ProcessSlot> slot, const Target& target, const std::string& name) {
  auto place = std::make_unique<Place>(options_);
  place->slot = std::move(slot);
  place->description.set_name(name);
  place->description.set_target(target.ToString());
  place->target = target;
  places_.push_back(std::move(place));
}

std::optional<absl::Status> Runners::Started() const {
  std::optional<absl::Status> failed;
  bool all_ready = true;
  for (const auto& place : places_) {
    if (!place->start_failure.empty()) {
      failed = absl::UnavailableError("the runner of '" + place->description.target() +
                                      "' does not start: " + place->start_failure);
    }
    all_ready = all_ready && place->health.state() == v1::DEVICE_STATE_READY;
  }
  if (!failed.has_value() && all_ready) return absl::OkStatus();
  return failed;
}

void Runners::Advance(Instant now) {
  for (auto& place : places_) {
    for (const SlotEvent& event : place->slot->Advance(now)) OnEvent(*place, event, now);
  }
}

std::optional<Instant> Runners::Place::NextProbe() const {
  return probe != nullptr || !slot->idle() ? std::nullopt : health.next_probe();
}

void Runners::TakeBuilt(const JobPtr& job) {
  if (job->finished || !job->built()) return;
  Place& place = *places_[job->device];
  if (job->probe) {
    place.waiting.push_front(job);
  } else if (place.health.in_quarantine()) {
    jobs_.Fail(job, ErrorKind::kInfrastructure, MeasureStage::kQueue, place.health.text());
  } else {
    place.waiting.push_back(job);
  }
}

void Runners::BeginProbes(Instant now) {
  for (size_t d = 0; d < places_.size(); ++d) {
    Place& place = *places_[d];
    std::optional<Instant> due = place.NextProbe();
    if (!due.has_value() || now < *due) continue;
    auto probe = std::make_shared<Job>();
    probe->probe = true;
    probe->device = static_cast<int>(d);
    probe->target = place.target.ToString();
    probe->request.set_workload(ProbeWorkload());
    probe->request.set_target(probe->target);
    probe->request.set_mode(v1::MEASURE_MODE_TIME_AND_VERIFY);
    probe->request.mutable_timing()->set_repeat(3);
    probe->request.mutable_timing()->set_min_repeat_ms(5);
    probe->request.set_run_timeout_seconds(options_.probe_timeout_seconds);
    probe->request.set_verify_timeout_seconds(options_.probe_timeout_seconds);
    place.probe = probe;
    asks_.reference(probe);
    probe->program = probe->reference;  // when it was built before
    TakeBuilt(probe);
  }
}

void Runners::Begin(Instant now) {
  for (auto& place : places_) {
    while (!place->waiting.empty() && place->waiting.front()->finished) place->waiting.pop_front();
    if (!place->slot->idle() || place->waiting.empty()) continue;
    if (place->health.suspect() && !place->waiting.front()->probe) continue;
    JobPtr job = std::move(place->waiting.front());
    place->waiting.pop_front();
    BeginRun(*place, std::move(job), now);
  }
}

void Runners::BeginRun(Place& place, JobPtr job, Instant now) {
  place.timeout = Timeout(options_, job->request.run_timeout_seconds(), options_.run_timeout_seconds);
  place.stage = MeasureStage::kLoad;
  job->result.mutable_times()->set_run_started_at(absl::GetCurrentTimeNanos());
  v1::ProcessMessage message;
  v1::RunJob& run = *message.mutable_run();
  run.set_workload(job->request.workload());
  if (job->network != nullptr) FillNetworkRun(*job, options_.limits.tensor_bytes, run);
  if (job->program != nullptr) run.set_program(*job->program);
  if (job->reference != nullptr) run.set_reference_program(*job->reference);
  *run.mutable_timing() = job->request.timing();
  run.set_mode(job->request.mode());
  if (auto best = race_.BestFor(*job, place.description.facts().model()); best.has_value()) run.set_best_seconds(*best);
  run.set_input_seed(job->request.input_seed());
  run.set_quiet(options_.quiet_timing && place.target.kind != TargetKind::kCuda);
  run.set_target(job->target);
  run.set_max_timing_seconds(kTimingShare * place.timeout);
  place.job = std::move(job);
  place.slot->Begin(message, place.timeout, now);
}

void Runners::OnEvent(Place& place, const SlotEvent& event, Instant now) {
  switch (event.kind) {
    case SlotEvent::Kind::kReady: OnReady(place); break;
    case SlotEvent::Kind::kStartFailure: OnStartFailure(place, event); break;
    case SlotEvent::Kind::kLoss: OnLost(place, event, now); break;
    case SlotEvent::Kind::kMessage:
      if (event.message->has_ran()) OnRan(place, *event.message->mutable_ran(), now);
      if (event.message->has_progress()) OnProgress(place, event.message->progress(), now);
      break;
  }
}

void Runners::OnReady(Place& place) {
  place.start_failure.clear();
  place.health.Started();
  *place.description.mutable_facts() = place.slot->ready_message()->ready().facts();
  place.description.set_state(v1::DEVICE_STATE_READY);
}

void Runners::OnProgress(Place& place, const v1::ProcessProgress& progress, Instant now) {
  place.stage = ParseStage(progress.stage()).value_or(place.stage);
  if (place.stage == MeasureStage::kVerify) {
    place.slot->ExtendDeadline(
        Timeout(options_, place.job->request.verify_timeout_seconds(), options_.verify_timeout_seconds), now);
  }
  SetQuiet(place, progress.await_go(), now);
  if (!progress.await_go()) return;
  v1::ProcessMessage go;
  go.mutable_go();
  place.slot->Send(go);
}

void Runners::SetQuiet(Place& place, bool quiet, Instant now) {
  if (place.holds_quiet == quiet) return;
  place.holds_quiet = quiet;
  asks_.quiet(quiet, now);
}

void Runners::OnRan(Place& place, v1::RunReply& reply, Instant now) {
  SetQuiet(place, false, now);
  if (reply.device_lost()) place.health.Restarts();
  JobPtr job = std::exchange(place.job, nullptr);
  CountRun(place, reply.has_error());
  AddStages(reply.stages(), *counts_.mutable_run_stages());
  if (reply.device_lost()) place.health.Suspect("the device was lost: " + reply.error().text(), now);
  job->result.mutable_times()->set_run_ended_at(absl::GetCurrentTimeNanos());
  if (job->finished) return;
  if (reply.has_verification()) *job->result.mutable_verification() = std::move(*reply.mutable_verification());
  if (reply.has_clocks()) *job->result.mutable_on()->mutable_clocks() = reply.clocks();
  if (reply.has_error()) {
    // A device that was reset, say: perhaps by the candidate, as when its process is killed.
    const bool infrastructure = reply.error().kind() == ErrorKindName(ErrorKind::kInfrastructure);
    job->result.set_runner_lost(infrastructure && reply.device_lost() && place.stage != MeasureStage::kVerify);
    *job->result.mutable_error() = std::move(*reply.mutable_error());
  } else {
    *job->result.mutable_timing() = std::move(*reply.mutable_timing());
    job->result.mutable_timing()->set_build_seconds(job->build_seconds);
    race_.Note(*job, place.description.facts().model());
  }
  jobs_.Finish(job);
}

void Runners::CountRun(Place& place, bool failed) {
  counts_.set_runs(counts_.runs() + 1);
  place.counts.set_runs(place.counts.runs() + 1);
  if (!failed) return;
  counts_.set_failed_runs(counts_.failed_runs() + 1);
  place.counts.set_failed_runs(place.counts.failed_runs() + 1);
}

void Runners::OnLost(Place& place, const SlotEvent& loss, Instant now) {
  SetQuiet(place, false, now);
  place.health.Restarts();
  JobPtr job = std::exchange(place.job, nullptr);
  CountRun(place, true);
  if (loss.loss == LossKind::kDeadline) place.health.Suspect("its runner did not answer and was killed", now);
  job->result.mutable_times()->set_run_ended_at(absl::GetCurrentTimeNanos());
  bool loading = place.stage == MeasureStage::kLoad;
  if (loss.loss == LossKind::kCrash && loading && place.slot->jobs_before() > 0 && !job->load_retried) {
    job->load_retried = true;
    place.waiting.push_front(job);
    return;
  }
  FailLost(jobs_, place.stage, place.timeout, job, loss);
}

void Runners::OnStartFailure(Place& place, const SlotEvent& failure) {
  place.start_failure = failure.text;
  std::string text = "the runner does not start: " + failure.text;
  if (failure.failures >= kMaxStartFailures) return Quarantine(place, text, std::chrono::steady_clock::now());
  place.health.Restarts(text);
}

void Runners::ProbeEnded(const JobPtr& probe, Instant now) {
  Place& place = *places_[probe->device];
  place.probe.reset();
  if (place.health.ProbeEnded(probe->result, probe->program != nullptr, now)) return;
  if (place.slot->idle()) place.slot->Replace(now);
  if (place.health.failed()) Quarantine(place, WhyProbeFailed(probe->result), now);
}

void Runners::Quarantine(Place& place, const std::string& why, Instant now) {
  place.health.Quarantine(why, place.start_failure.empty(), now);
  for (const JobPtr& job : std::exchange(place.waiting, {})) {
    if (job->probe) {
      job->finished = true;
      place.probe.reset();
    } else {
      jobs_.Fail(job, ErrorKind::kInfrastructure, MeasureStage::kQueue, why);
    }
  }
}

void Runners::ForEach(const std::function<void(const ProcessSlot& slot, std::optional<Instant> probe)>& visit) const {
  for (const auto& place : places_) visit(*place->slot, place->NextProbe());
}

void Runners::AddTo(v1::WorkerStatistics& statistics) const {
  double seconds = 0;
  uint64_t restarts = 0;
  size_t waiting = 0;
  for (const auto& place : places_) {
    seconds += place->slot->busy_seconds();
    restarts += place->slot->restarts();
    waiting += place->waiting.size();
  }
  statistics.set_runner_busy_seconds(seconds);
  statistics.set_runner_restarts(restarts);
  statistics.set_waiting_for_runner(static_cast<uint32_t>(waiting));
  statistics.set_devices(static_cast<uint32_t>(places_.size()));
}

std::vector<v1::DeviceStatus> Runners::States() const {
  std::vector<v1::DeviceStatus> states;
  for (const auto& place : places_) {
    v1::DeviceStatus& state = states.emplace_back();
    state.set_device(place->description.name());
    state.set_state(place->health.state());
    state.set_text(place->health.text());
  }
  return states;
}

std::vector<v1::DeviceStatistics> Runners::Counts() const {
  std::vector<v1::DeviceStatistics> counts;
  for (const auto& place : places_) {
    v1::DeviceStatistics& count = counts.emplace_back(place->counts);
    count.set_device(place->description.name());
    count.set_busy_seconds(place->slot->busy_seconds());
    count.set_reference_seconds(place->health.reference_seconds());
  }
  return counts;
}

}  // namespace diapason::pipeline
