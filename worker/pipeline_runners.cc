// Runners: one program at a time on each device, quiet while it is timed, and the best times, for early stopping.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "worker/convert.h"
#include "worker/pipeline_impl.h"

namespace diapason {
namespace {

constexpr size_t kMaxBestTimes = 4096;
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

}  // namespace

void Pipeline::Impl::RunIfBuilt(const JobPtr& job) {
  const bool built = job->network != nullptr ? job->network->missing == 0 : job->program != nullptr;
  if (job->finished || !built || (job->wants_reference() && job->reference == nullptr)) return;
  RunnerPlace& place = *runners_[job->device];
  if (job->probe) {
    place.waiting.push_front(job);
  } else if (place.state == v1::DEVICE_STATE_QUARANTINED) {
    Fail(job, ErrorKind::kInfrastructure, MeasureStage::kQueue, place.state_text);
  } else {
    place.waiting.push_back(job);
  }
}

void Pipeline::Impl::BeginRuns(Instant now) {
  for (auto& place : runners_) {
    while (!place->waiting.empty() && place->waiting.front()->finished) place->waiting.pop_front();
    if (!place->slot->idle() || place->waiting.empty()) continue;
    if (place->suspect && !place->waiting.front()->probe) continue;
    JobPtr job = std::move(place->waiting.front());
    place->waiting.pop_front();
    BeginRun(*place, std::move(job), now);
  }
}

void Pipeline::Impl::BeginRun(RunnerPlace& place, JobPtr job, Instant now) {
  place.timeout = Timeout(job->request.run_timeout_seconds(), options_.run_timeout_seconds);
  place.stage = MeasureStage::kLoad;
  job->result.mutable_times()->set_run_started_at(absl::GetCurrentTimeNanos());
  v1::ProcessMessage message;
  v1::RunJob& run = *message.mutable_run();
  run.set_workload(job->request.workload());
  if (job->network != nullptr) FillNetworkRun(*job, run);
  if (job->program != nullptr) run.set_program(*job->program);
  if (job->reference != nullptr) run.set_reference_program(*job->reference);
  *run.mutable_timing() = job->request.timing();
  run.set_mode(job->request.mode());
  if (auto best = BestFor(*job); best.has_value()) run.set_best_seconds(*best);
  run.set_input_seed(job->request.input_seed());
  run.set_quiet(options_.quiet_timing && place.target.kind != TargetKind::kCuda);
  run.set_target(job->target);
  run.set_max_timing_seconds(kTimingShare * place.timeout);
  place.job = std::move(job);
  place.slot->Begin(message, place.timeout, now);
}

void Pipeline::Impl::OnRunner(RunnerPlace& place, const SlotEvent& event, Instant now) {
  switch (event.kind) {
    case SlotEvent::Kind::kReady: OnRunnerReady(place); break;
    case SlotEvent::Kind::kStartFailure: OnRunnerStartFailure(place, event); break;
    case SlotEvent::Kind::kLoss: OnRunnerLost(place, event, now); break;
    case SlotEvent::Kind::kMessage:
      if (event.message->has_ran()) OnRan(place, *event.message->mutable_ran(), now);
      if (event.message->has_progress()) OnRunnerProgress(place, event.message->progress(), now);
      break;
  }
}

void Pipeline::Impl::OnRunnerReady(RunnerPlace& place) {
  place.start_failure.clear();
  if (!place.suspect) {
    place.state = v1::DEVICE_STATE_READY;
    place.state_text.clear();
  }
  *place.description.mutable_facts() = place.slot->ready_message()->ready().facts();
  place.description.set_state(v1::DEVICE_STATE_READY);
}

void Pipeline::Impl::OnRunnerProgress(RunnerPlace& place, const v1::ProcessProgress& progress, Instant now) {
  place.stage = ParseStage(progress.stage()).value_or(place.stage);
  if (place.stage == MeasureStage::kVerify) {
    place.slot->ExtendDeadline(Timeout(place.job->request.verify_timeout_seconds(), options_.verify_timeout_seconds),
                               now);
  }
  SetQuiet(place, progress.await_go(), now);
  if (!progress.await_go()) return;
  v1::ProcessMessage go;
  go.mutable_go();
  place.slot->Send(go);
}

void Pipeline::Impl::SetQuiet(RunnerPlace& place, bool quiet, Instant now) {
  if (place.holds_quiet == quiet) return;
  place.holds_quiet = quiet;
  quiet_holders_ += quiet ? 1 : -1;
  if (quiet_holders_ == (quiet ? 1 : 0)) {
    for (auto& builder : builders_) quiet ? builder->slot->Pause(now) : builder->slot->Resume(now);
  }
}

void Pipeline::Impl::OnRan(RunnerPlace& place, v1::RunReply& reply, Instant now) {
  SetQuiet(place, false, now);
  if (reply.device_lost()) place.state = v1::DEVICE_STATE_RESTARTING;
  JobPtr job = std::exchange(place.job, nullptr);
  CountRun(place, reply.has_error());
  AddStages(reply.stages(), *counts_.mutable_run_stages());
  if (reply.device_lost()) Suspect(place, "the device was lost: " + reply.error().text(), now);
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
    NoteBest(*job);
  }
  Finish(job);
}

void Pipeline::Impl::CountRun(RunnerPlace& place, bool failed) {
  counts_.set_runs(counts_.runs() + 1);
  place.counts.set_runs(place.counts.runs() + 1);
  if (!failed) return;
  counts_.set_failed_runs(counts_.failed_runs() + 1);
  place.counts.set_failed_runs(place.counts.failed_runs() + 1);
}

void Pipeline::Impl::OnRunnerLost(RunnerPlace& place, const SlotEvent& loss, Instant now) {
  SetQuiet(place, false, now);
  place.state = v1::DEVICE_STATE_RESTARTING;
  JobPtr job = std::exchange(place.job, nullptr);
  CountRun(place, true);
  if (loss.loss == LossKind::kDeadline) Suspect(place, "its runner did not answer and was killed", now);
  job->result.mutable_times()->set_run_ended_at(absl::GetCurrentTimeNanos());
  bool loading = place.stage == MeasureStage::kLoad;
  if (loss.loss == LossKind::kCrash && loading && place.slot->jobs_before() > 0 && !job->load_retried) {
    job->load_retried = true;
    place.waiting.push_front(job);
    return;
  }
  std::string text = "runner: " + loss.text;
  switch (loss.loss) {
    case LossKind::kDeadline:
      text = WithDetail("not finished within " + SecondsText(place.timeout), loss.text);
      if (place.stage == MeasureStage::kRun) return Fail(job, ErrorKind::kRunTimeout, place.stage, text);
      // Nothing of the candidate was running, though loading it may be what hangs.
      job->result.set_runner_lost(loading);
      return Fail(job, ErrorKind::kInfrastructure, place.stage,
                  loading ? text : WithDetail("the reference implementation did not finish in time", loss.text));
    case LossKind::kCrash: return Fail(job, ErrorKind::kRunCrash, place.stage, text);
    case LossKind::kOutOfMemory: return Fail(job, ErrorKind::kOutOfMemory, place.stage, text);
    case LossKind::kKilled:
      job->result.set_runner_lost(true);
      return Fail(job, ErrorKind::kInfrastructure, place.stage, text);
  }
}

void Pipeline::Impl::OnRunnerStartFailure(RunnerPlace& place, const SlotEvent& failure) {
  place.start_failure = failure.text;
  std::string text = "the runner does not start: " + failure.text;
  if (failure.failures >= kMaxStartFailures) return Quarantine(place, text, std::chrono::steady_clock::now());
  place.state = v1::DEVICE_STATE_RESTARTING;
  place.state_text = text;
}

// ---- times to race against

void Pipeline::Impl::NoteBest(const Job& job) {
  Timing timing = FromProto(job.result.timing());
  if (timing.samples.empty() || timing.stopped_early) return;
  if (best_.size() >= kMaxBestTimes) best_.clear();
  double median = MedianSeconds(timing);
  auto [entry, added] = best_.emplace(RaceKey(job), median);
  entry->second = std::min(entry->second, median);
}

std::optional<double> Pipeline::Impl::BestFor(const Job& job) const {
  std::optional<double> best;
  if (job.request.has_best_seconds() && job.request.best_seconds() > 0) best = job.request.best_seconds();
  if (auto known = best_.find(RaceKey(job)); known != best_.end())
    best = std::min(best.value_or(known->second), known->second);
  return best;
}

}  // namespace diapason
