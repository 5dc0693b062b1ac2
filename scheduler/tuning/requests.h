// Requests that were submitted to the measurer and have no outcome yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/measurer.h"
#include "scheduler/tuning/trial.h"

namespace diapason::tuning {

class Requests {
 public:
  Requests(Measurer& measurer, size_t tasks) : measurer_(measurer), waiting_(tasks) {}

  // Numbers and submits them. The errors of the measurer.
  absl::Status Submit(std::vector<Pending> pending);
  // The request of an outcome; nothing when it was answered already.
  std::optional<Pending> Take(int64_t id);
  // Forgets verifications and confirmations, which may be asked for anew; a trial that still answers is stored. Returns
  // their tasks.
  std::vector<int> GiveUpVerifications();
  bool empty() const { return pending_.empty(); }
  size_t size() const { return pending_.size(); }
  // Of the next request.
  int64_t next_number() const { return next_; }
  int64_t TakeNumber() { return next_++; }

  // Trials of a task that were proposed and have no result.
  int waiting(int task) const { return waiting_[task]; }
  int64_t waiting() const;
  void AddWaiting(int task, int trials) { waiting_[task] += trials; }

 private:
  Measurer& measurer_;
  std::map<int64_t, Pending> pending_;  // by request
  int64_t next_ = 1;
  std::vector<int> waiting_;  // of each task
};

}  // namespace diapason::tuning
