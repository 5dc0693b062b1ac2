// The requests of a pipeline that have no result yet, and how they get it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/runtime/outcome.h"
#include "worker/pipeline/job.h"

namespace diapason::pipeline {

class Jobs {
 public:
  using ProbeEnded = std::function<void(const JobPtr& probe)>;

  // `devices`: by number, for results. Probes are for `probe_ended` alone.
  Jobs(const std::vector<v1::DeviceDescription>& devices, ProbeEnded probe_ended)
      : devices_(devices), probe_ended_(std::move(probe_ended)) {}

  void Add(const JobPtr& job) { jobs_[job->handle] = job; }
  // Each ends a job with what it has; nothing if it has ended.
  void Finish(const JobPtr& job);
  void Fail(const JobPtr& job, ErrorKind kind, MeasureStage stage, const std::string& text);
  // By handle; nothing for one that is not there.
  void Cancel(uint64_t handle, const std::string& reason);
  void CancelAll(const std::string& reason);
  // Those with a result that was not given out yet.
  std::vector<JobPtr> TakeAnswers() { return std::exchange(answers_, {}); }

 private:
  const std::vector<v1::DeviceDescription>& devices_;
  const ProbeEnded probe_ended_;
  std::map<uint64_t, JobPtr> jobs_;
  std::vector<JobPtr> answers_;
};

}  // namespace diapason::pipeline
