// Builders: handing out what is to be built, and what becomes of it.
#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "worker/convert.h"
#include "worker/pipeline_impl.h"

namespace diapason {

void Pipeline::Impl::BeginBuilds(Instant now) {
  for (auto& place : builders_) {
    if (quiet_holders_ > 0) return;
    if (!place->slot->idle()) continue;
    while (!builds_.empty() && builds_.front().job->finished && builds_.front().reference == nullptr)
      builds_.pop_front();
    if (builds_.empty()) return;
    BuildTask task = std::move(builds_.front());
    builds_.pop_front();
    const v1::MeasureRequest& request = task.job->request;
    place->timeout = Timeout(request.build_timeout_seconds(), options_.build_timeout_seconds);
    place->stage = MeasureStage::kInstantiate;
    v1::StageTimes& times = *task.job->result.mutable_times();
    if (task.reference == nullptr && times.build_started_at() == 0)
      times.set_build_started_at(absl::GetCurrentTimeNanos());
    v1::ProcessMessage message;
    v1::BuildJob& build = *message.mutable_build();
    build = BuildJobOf(task);
    // Ours is the deadline that counts: it stands still in pauses, of which the builder knows nothing.
    build.set_timeout_seconds(options_.max_timeout_seconds);
    place->task = std::move(task);
    place->slot->Begin(message, place->timeout, now);
  }
}

v1::BuildJob Pipeline::Impl::BuildJobOf(const BuildTask& task) const {
  const v1::MeasureRequest& request = task.job->request;
  v1::BuildJob build;
  build.set_workload(request.workload());
  build.set_target(task.job->target);
  build.set_reference(task.reference != nullptr);
  if (task.reference == nullptr) build.set_schedule(request.schedule());
  if (task.of_network()) FillNetworkBuild(task, build);
  *build.mutable_facts() = runners_[task.job->device]->description.facts();
  if (!task.job->probe) ToProto(options_.limits, *build.mutable_limits());
  return build;
}

void Pipeline::Impl::OnBuilder(BuilderPlace& place, const SlotEvent& event) {
  switch (event.kind) {
    case SlotEvent::Kind::kReady: place.start_failures = 0; break;
    case SlotEvent::Kind::kStartFailure:
      place.start_failures = event.failures;
      GiveUpBuildsIfNoBuilder(event.text);
      break;
    case SlotEvent::Kind::kLoss: OnBuilderLost(place, event); break;
    case SlotEvent::Kind::kMessage:
      if (event.message->has_built()) OnBuilt(place, *event.message->mutable_built());
      if (event.message->has_progress())
        place.stage = ParseStage(event.message->progress().stage()).value_or(place.stage);
      break;
  }
}

void Pipeline::Impl::OnBuilt(BuilderPlace& place, v1::BuildReply& reply) {
  BuildTask task = *std::exchange(place.task, std::nullopt);
  counts_.set_builds(counts_.builds() + 1);
  if (reply.has_error()) {
    MeasureError error = FromProto(reply.error());
    FailBuild(task, error.kind, error.stage, error.text);
    return;
  }
  BuiltProgram built{.program = std::make_shared<const std::string>(std::move(*reply.mutable_program())),
                     .compiler = reply.compiler(),
                     .registers = {reply.registers().begin(), reply.registers().end()},
                     .spill_bytes = {reply.spill_bytes().begin(), reply.spill_bytes().end()},
                     .seconds = reply.seconds()};
  built_.Put(BuildKey(task), built);
  TakeBuilt(task, built);
}

void Pipeline::Impl::TakeBuilt(const BuildTask& task, const BuiltProgram& built) {
  Job& job = *task.job;
  if (task.reference != nullptr) {
    std::erase(references_, task.reference);
    for (const JobPtr& waiting : std::exchange(task.reference->waiting, {})) {
      waiting->reference = built.program;
      if (waiting->probe) waiting->program = built.program;
      RunIfBuilt(waiting);
    }
    return;
  }
  job.result.set_compiler(built.compiler);
  if (task.of_network()) {
    if (job.finished) return;  // given up meanwhile
    job.build_seconds += built.seconds;
    TakeNetworkProgram(task, built.program);
    return RunIfBuilt(task.job);
  }
  job.program = built.program;
  job.build_seconds = built.seconds;
  job.result.mutable_registers()->Assign(built.registers.begin(), built.registers.end());
  job.result.mutable_spill_bytes()->Assign(built.spill_bytes.begin(), built.spill_bytes.end());
  NoteBuilt(job);
  RunIfBuilt(task.job);
}

// What was known was never begun.
void Pipeline::Impl::NoteBuilt(Job& job) {
  v1::StageTimes& times = *job.result.mutable_times();
  times.set_build_ended_at(absl::GetCurrentTimeNanos());
  if (times.build_started_at() == 0) times.set_build_started_at(times.build_ended_at());
}

void Pipeline::Impl::OnBuilderLost(BuilderPlace& place, const SlotEvent& loss) {
  BuildTask task = *std::exchange(place.task, std::nullopt);
  counts_.set_builds(counts_.builds() + 1);
  switch (loss.loss) {
    case LossKind::kDeadline:
      return FailBuild(task, ErrorKind::kBuildTimeout, place.stage,
                       WithDetail("not built within " + SecondsText(place.timeout), loss.text));
    case LossKind::kCrash: return FailBuild(task, ErrorKind::kBuildCrash, place.stage, "builder: " + loss.text);
    case LossKind::kOutOfMemory: return FailBuild(task, ErrorKind::kOutOfMemory, place.stage, "builder: " + loss.text);
    case LossKind::kKilled: return FailBuild(task, ErrorKind::kInfrastructure, place.stage, "builder: " + loss.text);
  }
}

void Pipeline::Impl::FailBuild(const BuildTask& task, ErrorKind kind, MeasureStage stage, const std::string& text) {
  counts_.set_failed_builds(counts_.failed_builds() + 1);
  if (task.network_task >= 0 && kind != ErrorKind::kInstantiation)
    return Fail(task.job, ErrorKind::kInfrastructure, stage,
                WithDetail("the reference implementation could not be built", text));
  if (task.reference == nullptr) {
    task.job->result.mutable_times()->set_build_ended_at(absl::GetCurrentTimeNanos());
    return Fail(task.job, kind, stage, task.of_network() ? "task " + NetworkTaskName(task) + ": " + text : text);
  }
  // A reference that cannot be had says nothing of the candidates; the next one to ask has it tried again.
  std::erase(references_, task.reference);
  for (const JobPtr& job : task.reference->waiting) {
    // What is refused for itself is not tried elsewhere.
    if (kind == ErrorKind::kInstantiation) {
      Fail(job, kind, stage, text);
      continue;
    }
    Fail(job, ErrorKind::kInfrastructure, stage, WithDetail("the reference implementation could not be built", text));
  }
}

void Pipeline::Impl::GiveUpBuildsIfNoBuilder(const std::string& text) {
  bool none = std::all_of(builders_.begin(), builders_.end(),
                          [](const auto& place) { return place->start_failures >= kMaxStartFailures; });
  if (!none) return;
  for (const BuildTask& task : std::exchange(builds_, {})) {
    FailBuild(task, ErrorKind::kInfrastructure, MeasureStage::kQueue, "no builder starts: " + text);
  }
}

}  // namespace diapason
