// A tuning run: proposes candidates for a list of tasks, has them measured, stores every result in a history, and
// verifies the best of each task.
//
// Searching, building, running and training proceed concurrently. One thread owns all state; a search runs beside it on
// a task of its own, outcomes are collected by another. The measurer always has about a round ahead of it, of several
// tasks when there are several, and no more: what is proposed late knows more.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/target.h"
#include "costmodel/cost_model.h"
#include "db/history.h"
#include "scheduler/evolution.h"
#include "scheduler/measurer.h"
#include "scheduler/objective.h"
#include "scheduler/progress.h"
#include "scheduler/space.h"
#include "scheduler/warm_start.h"

namespace diapason {

class RoundStore;

struct TuningTask {
  std::string name;  // for people
  ComputeDag dag;
  std::string workload_key;            // ComputeDag::workload_key, different for each task
  std::vector<NetworkWeight> weights;  // networks that hold it, and how often
};

using SpaceFactory =
    std::function<absl::StatusOr<std::unique_ptr<TaskSpace>>(const ComputeDag&, const Target&, const DeviceFacts&)>;

struct TunerOptions {
  Target target;
  DeviceFacts facts;        // of the device that measures: records are looked up and stored under facts.model
  SpaceFactory make_space;  // TaskSpace::Create in the program

  int64_t trials = 1000;  // of the tuned tasks together; what the history holds already counts
  // Ends the run too; 0: no limit. The last trials are sent early enough for them and the verification of the bests to
  // end in time; how early is estimated from the pace so far, so that a run may end a little later.
  double seconds = 0;
  std::vector<int> only;  // tasks to tune, as indices; empty: all
  // The choice points of the networks, over positions in the list of tasks. A choice counts when all of its tasks are
  // tuned.
  std::vector<NetworkChoice> choices;
  uint64_t seed = 0;
  int trials_per_round = 64;  // at most: fewer when the trials would not give each task four rounds
  MeasureOptions measure;
  std::string objective = "sum";  // Objective::Parse
  // What History::Latency knows the network by; empty: its latency is not asked for.
  std::string latency_network;
  // Samples that are taken at the end of the best of each task that counts, in full, where it has no more than that:
  // the best of many short measurements is as fast as it looks only by luck. What is then behind another one loses its
  // place. 0: none are.
  int confirming_samples = 0;
  // Candidates of a task within 5% of its best that are then measured in turns with it (scheduler/tuning/contenders.h),
  // the best included: first those of tasks in which the network spends most, as long as all turns fit in a tenth of
  // the run. On cuda a sample in turns has about 1,000 runs at most, also if it is shorter then than
  // measure.min_repeat_ms, but with flushed caches. 1: the best is measured alone.
  int contenders = 1;
  // TaskSchedulerOptions::early_stop: 0.01 stops when the next tenth of the trials is expected to give < 1%.
  double early_stop = 0;
  // Ends the run when so many trials in a row were no task's new best and every task has a time; 0: never.
  int64_t patience = 0;
  EvolutionOptions evolution;  // its seed is not used
  Label label = Label::kResidual;
  bool learn = true;  // false: the analytic estimate ranks throughout, to see what the model is worth
  // Rounds begin with what the nearest other tasks of the run and workloads of the history found best (warm_start.h).
  bool warm_start = true;
  // With warm_start: what was found elsewhere, such as on another device, and counts as workloads of the history do.
  std::vector<TunedWorkload> tuned_elsewhere;
  std::string model_path;  // the cost model is loaded from and saved to this file; empty: neither
  // Waits for each round's results and training before the next one is searched, and takes the results in the order of
  // the proposals: slower, and the same every time for the same seed and measurements.
  bool synchronous = false;
  // With `synchronous`: runs of the history that this one resumes as if it had never been interrupted. It begins with
  // what they began with, and what it proposes and the history has since is taken from there instead of measured again:
  // the proposals are those of an unbroken run. They were runs of the same tasks and options.
  std::vector<int64_t> continued_runs;

  // What is proposed, and what searches begin and continue with, is kept there under this name until the run has come
  // to its end. A run of that name that was interrupted resumes from it: what it had proposed is measured first, and
  // what it proposes is what it would have for the same results in the same order (scheduler/tuning/resumption.h).
  // Null: neither. Not with `synchronous`, which plays such runs again.
  RoundStore* rounds = nullptr;
  std::string rounds_run;

  std::string command_line, host, version;  // for the history's table of runs
  double stop_grace_s = 5;                  // after a stop: how long to wait for what is being measured
  double stall_s = 600;           // without any outcome while some are due: the run ends with DeadlineExceeded
  std::function<double()> clock;  // seconds, monotonic; default: the system's
};

class Tuner {
 public:
  // Builds the search spaces of the tasks. InvalidArgument for options or an objective that make no sense; the
  // factory's error, with the task's name in front, for a task that has no schedule on the target. What is pointed to
  // must outlive the tuner; `listener` may be null.
  static absl::StatusOr<std::unique_ptr<Tuner>> Create(std::vector<TuningTask> tasks, TunerOptions options,
                                                       Measurer* measurer, History* history,
                                                       ProgressListener* listener = nullptr);
  ~Tuner();

  // Runs to the end of the trials or of the time, until no more gain is expected, or until *stop becomes true: then
  // what is being measured is given stop_grace_s to end. All that was measured is in the history in each case, errors
  // included; the report is also handed to OnFinish, on errors too. Errors: of the history (full disk), of the measurer
  // (no worker left), Unavailable when only faults of the infrastructure come back. To be called once.
  absl::StatusOr<TuneReport> Run(const std::atomic<bool>* stop = nullptr);

 private:
  class Impl;
  explicit Tuner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
