#include "worker/pipeline/builds.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "compiler/tensor/target.h"
#include "worker/pipeline/network_builds.h"
#include "worker/process/convert.h"

namespace diapason::pipeline {
namespace {

// What was known was never begun.
void NoteBuilt(Job& job) {
  v1::StageTimes& times = *job.result.mutable_times();
  times.set_build_ended_at(absl::GetCurrentTimeNanos());
  if (times.build_started_at() == 0) times.set_build_started_at(times.build_ended_at());
}

// Requests whose targets differ in what programs do not depend on share them.
std::string TargetOfPrograms(const Job& job) {
  const absl::StatusOr<Target> target = Target::Parse(job.target);
  return target.ok() ? target->ForKernels().ToString() : job.target;
}

}  // namespace

void Builds::Add(const JobPtr& job) {
  if (job->request.has_network()) return AddNetwork(job);
  const BuildTask candidate{job, nullptr};
  const BuiltProgram* known = cache_.Find(KeyOf(candidate));
  if (known == nullptr) queue_.push_back(candidate);
  if (job->wants_reference()) WantReference(job);
  if (known != nullptr) Take(candidate, *known);
}

void Builds::AddNetwork(const JobPtr& job) {
  if (absl::Status valid = CheckNetworkRequest(job->request.network()); !valid.ok())
    return jobs_.Fail(job, ErrorKind::kInstantiation, MeasureStage::kQueue, std::string(valid.message()));
  for (const BuildTask& task : NetworkTasks(job)) {
    if (const BuiltProgram* known = cache_.Find(KeyOf(task))) {
      job->result.set_compiler(known->compiler);
      TakeNetworkProgram(task, known->program);
      if (job->built()) NoteBuilt(*job);
    } else {
      queue_.push_back(task);
    }
  }
  on_built_(job);
}

void Builds::WantReference(const JobPtr& job) {
  const auto reference = std::make_shared<ReferenceBuild>();
  const BuildTask task{job, reference};
  reference->key = KeyOf(task);
  if (const BuiltProgram* known = cache_.Find(reference->key)) {
    job->reference = known->program;
    return;
  }
  const auto under_way = std::find_if(references_.begin(), references_.end(),
                                      [&](const ReferencePtr& n) { return n->key == reference->key; });
  if (under_way != references_.end()) {
    (*under_way)->waiting.push_back(job);
    return;
  }
  reference->waiting.push_back(job);
  references_.push_back(reference);
  queue_.push_back(task);
}

std::optional<BuildTask> Builds::Next() {
  while (!queue_.empty() && queue_.front().job->finished && queue_.front().reference == nullptr) queue_.pop_front();
  if (queue_.empty()) return std::nullopt;
  BuildTask task = std::move(queue_.front());
  queue_.pop_front();
  v1::StageTimes& times = *task.job->result.mutable_times();
  if (task.reference == nullptr && times.build_started_at() == 0)
    times.set_build_started_at(absl::GetCurrentTimeNanos());
  return task;
}

v1::BuildJob Builds::BuildJobOf(const BuildTask& task) const {
  const v1::MeasureRequest& request = task.job->request;
  v1::BuildJob build;
  build.set_workload(request.workload());
  build.set_target(TargetOfPrograms(*task.job));
  build.set_reference(task.reference != nullptr);
  if (task.reference == nullptr) build.set_schedule(request.schedule());
  if (task.of_network()) FillNetworkBuild(task, build);
  *build.mutable_facts() = facts_(task.job->device);
  if (!task.job->probe) ToProto(options_.limits, *build.mutable_limits());
  return build;
}

void Builds::Built(const BuildTask& task, v1::BuildReply& reply) {
  if (reply.has_error()) {
    MeasureError error = FromProto(reply.error());
    return Failed(task, error.kind, error.stage, error.text);
  }
  BuiltProgram built{.program = std::make_shared<const std::string>(std::move(*reply.mutable_program())),
                     .compiler = reply.compiler(),
                     .registers = {reply.registers().begin(), reply.registers().end()},
                     .spill_bytes = {reply.spill_bytes().begin(), reply.spill_bytes().end()},
                     .seconds = reply.seconds()};
  cache_.Put(KeyOf(task), built);
  Take(task, built);
}

void Builds::Take(const BuildTask& task, const BuiltProgram& built) {
  Job& job = *task.job;
  if (task.reference != nullptr) {
    std::erase(references_, task.reference);
    for (const JobPtr& waiting : std::exchange(task.reference->waiting, {})) {
      waiting->reference = built.program;
      if (waiting->probe) waiting->program = built.program;
      on_built_(waiting);
    }
    return;
  }
  job.result.set_compiler(built.compiler);
  if (task.of_network()) {
    if (job.finished) return;  // given up meanwhile
    job.build_seconds += built.seconds;
    TakeNetworkProgram(task, built.program);
    if (job.built()) NoteBuilt(job);
    return on_built_(task.job);
  }
  job.program = built.program;
  job.build_seconds = built.seconds;
  job.result.mutable_registers()->Assign(built.registers.begin(), built.registers.end());
  job.result.mutable_spill_bytes()->Assign(built.spill_bytes.begin(), built.spill_bytes.end());
  NoteBuilt(job);
  on_built_(task.job);
}

void Builds::Failed(const BuildTask& task, ErrorKind kind, MeasureStage stage, const std::string& text) {
  counts_.set_failed_builds(counts_.failed_builds() + 1);
  if (task.network_task >= 0 && kind != ErrorKind::kInstantiation)
    return jobs_.Fail(task.job, ErrorKind::kInfrastructure, stage,
                      WithDetail("the reference implementation could not be built", text));
  if (task.reference == nullptr) {
    task.job->result.mutable_times()->set_build_ended_at(absl::GetCurrentTimeNanos());
    return jobs_.Fail(task.job, kind, stage, task.of_network() ? "task " + NetworkTaskName(task) + ": " + text : text);
  }
  // A reference that cannot be had says nothing of the candidates; the next one to ask has it tried again.
  std::erase(references_, task.reference);
  for (const JobPtr& job : task.reference->waiting) {
    // What is refused for itself is not tried elsewhere.
    if (kind == ErrorKind::kInstantiation) {
      jobs_.Fail(job, kind, stage, text);
      continue;
    }
    jobs_.Fail(job, ErrorKind::kInfrastructure, stage,
               WithDetail("the reference implementation could not be built", text));
  }
}

void Builds::GiveUp(const std::string& text) {
  for (const BuildTask& task : std::exchange(queue_, {}))
    Failed(task, ErrorKind::kInfrastructure, MeasureStage::kQueue, text);
}

}  // namespace diapason::pipeline
