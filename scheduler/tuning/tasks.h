// The tasks of a tuning run: what is known of each, which of them are tuned, the scheduler and the cost model.
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
  std::vector<int> selected;                    // ids of those that are tuned, in order
  std::vector<int> scheduled_as;                // by id: index in the scheduler; -1: not tuned
  std::vector<int> choices;                     // of TunerOptions::choices, those that the scheduler knows
  int round_size = 0;                           // trials of a round, at most
  std::unique_ptr<TaskScheduler> scheduler;
  std::unique_ptr<XgbCostModel> model;

  TaskState& at(int id) const { return *all[id]; }
};

// Builds the search spaces. InvalidArgument for options or an objective that make no sense; the factory's error, with
// the task's name in front. Changes options that others imply.
absl::StatusOr<Tasks> MakeTasks(std::vector<TuningTask> tasks, TunerOptions& options);

// What all parts of a run have, by reference.
struct RunContext {
  const TunerOptions& options;
  const Tasks& tasks;
  History& history;
  ProgressListener* listener;  // may be null
  StageReport& stages;
};

}  // namespace diapason::tuning
