// What rounds begin with: the best of the nearest other tasks of the run and workloads of the history.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/tuning/tasks.h"
#include "scheduler/warm_start.h"

namespace diapason::tuning {

class WarmStarts {
 public:
  explicit WarmStarts(const RunContext& context) : context_(context) {}

  // Reads what the history has of workloads that are no task of this run, made before a moment (Unix nanoseconds).
  absl::Status Load(int64_t before);
  // What the next round of a task begins with.
  std::vector<Suggestion> For(int task, int trials) const;

 private:
  const RunContext context_;
  std::vector<TunedWorkload> tuned_before_;  // no tasks of this run
};

}  // namespace diapason::tuning
