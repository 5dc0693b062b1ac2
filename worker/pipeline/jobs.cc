#include "worker/pipeline/jobs.h"

#include <cstdio>

#include "worker/process/convert.h"

namespace diapason::pipeline {

std::string SecondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g s", seconds);
  return text;
}

std::string WithDetail(const std::string& text, const std::string& detail) {
  return detail.empty() ? text : text + ": " + detail;
}

void Jobs::Fail(const JobPtr& job, ErrorKind kind, MeasureStage stage, const std::string& text) {
  if (job->finished) return;
  SetError(kind, stage, text, *job->result.mutable_error());
  Finish(job);
}

void Jobs::Finish(const JobPtr& job) {
  if (job->finished) return;
  job->finished = true;
  if (job->probe) return probe_ended_(job);
  job->result.set_id(job->request.id());
  if (job->result.times().run_started_at() > 0) {
    const v1::DeviceDescription& device = devices_[job->device];
    v1::MeasuredOn& on = *job->result.mutable_on();
    on.set_device(device.name());
    on.set_model(device.facts().model());
    on.set_uuid(device.facts().uuid());
    on.set_driver(device.facts().driver());
  }
  jobs_.erase(job->handle);
  job->program.reset();
  job->reference.reset();
  job->network.reset();
  answers_.push_back(job);
}

void Jobs::Cancel(uint64_t handle, const std::string& reason) {
  const auto found = jobs_.find(handle);
  if (found == jobs_.end()) return;
  const JobPtr job = found->second;
  job->result.mutable_cancelled()->set_reason(reason);
  Finish(job);
}

void Jobs::CancelAll(const std::string& reason) {
  while (!jobs_.empty()) Cancel(jobs_.begin()->first, reason);
}

}  // namespace diapason::pipeline
