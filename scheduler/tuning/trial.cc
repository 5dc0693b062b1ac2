#include "scheduler/tuning/trial.h"

#include <chrono>

namespace diapason::tuning {

Proposal MakeProposal(const TaskState& task, const Candidate& candidate) {
  const Schedule schedule = task.space().space(candidate.space).Instantiate(candidate.configuration);
  return {task.RecordOf(candidate, schedule, SerializeSchedule(schedule)), candidate.space, 0};
}

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace diapason::tuning
