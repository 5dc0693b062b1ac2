// The tasks of a tuning run: the state of each, the selection to tune, the task scheduler and the cost model.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "costmodel/cost_model.h"
#include "scheduler/task_scheduler.h"
#include "scheduler/task_state.h"
#include "scheduler/tuner.h"
#include "scheduler/tuning/trial.h"

namespace diapason::tuning {

struct Tasks {
  std::vector<std::unique_ptr<TaskState>> all;  // by id
  std::vector<int> selected;                    // ids of the tasks to tune, in order
  std::vector<int> scheduled_as;                // by id: index in the scheduler; -1: not tuned
  std::vector<int> choices;                     // indices in TunerOptions::choices of those that the scheduler uses
  int round_size = 0;                           // most trials of a round
  std::unique_ptr<TaskScheduler> scheduler;
  std::unique_ptr<XgbCostModel> model;

  TaskState& at(int id) const { return *all[id]; }
};

// Creates the search spaces. InvalidArgument: inconsistent options or an invalid objective; errors of the space factory
// are prefixed with the task's name. Sets options that are implied by others.
absl::StatusOr<Tasks> MakeTasks(std::vector<TuningTask> tasks, TunerOptions& options);

// References that all parts of a run share.
struct RunContext {
  const TunerOptions& options;
  const Tasks& tasks;
  History& history;
  ProgressListener* listener;  // may be null
  StageReport& stages;
};

}  // namespace diapason::tuning
