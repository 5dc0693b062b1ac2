// Callers that wait for news of a job. They hold no thread: one of ours looks for all of them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"

namespace diapason {

class JobManager;
namespace v1 {
class Job;
}

class JobWaiters {
 public:
  using Reply = std::function<void(const absl::Status&, v1::Job)>;

  // `jobs` outlives it.
  explicit JobWaiters(JobManager& jobs);
  // Stops.
  ~JobWaiters();
  JobWaiters(const JobWaiters&) = delete;
  JobWaiters& operator=(const JobWaiters&) = delete;

  // Answers once the job's version is above `seen`, `wait` is over or `gone` is set: with the job as it then is, or the
  // errors of JobManager::Get. Safe from any thread.
  void Add(int64_t job, uint64_t seen, std::chrono::milliseconds wait, std::shared_ptr<const std::atomic<bool>> gone,
           Reply reply);
  // Answers all of them, and those that come later at once. Idempotent.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
