// Which task gets the next round of trials: Ansor's gradient-based task scheduler (OSDI 2020, section 6) as pure logic.
//
// The expected gain of another round of a task is the slope of the objective times what the round makes the task faster
// (scheduler/task_gain.h), and the task with the largest gain is next, but for a share of random choices. Departures
// from Ansor's code:
//   - rounds may differ in size and overlap: n counts trials, those in flight included, in rounds of the nominal size;
//   - a task without any valid result has an unknown potential, not an infinite one: it gets a bounded number of rounds
//     spread over the run, then it is given up;
//   - the histories of a run before this one are restored, so the backward term continues;
//   - similar tasks are recognized by kind and size of their anchor, not by an attribute that nobody sets;
//   - the run ends when the gain expected of the next trials is small;
//   - tasks of fusion alternatives get a first round when those of the default fusion have had theirs; after that an
//     alternative that is clearly behind gets no more, and all that do not win together no more than a share of the
//     trials.
// Not safe from several threads.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/convergence.h"
#include "scheduler/objective.h"
#include "scheduler/task_gain.h"
#include "scheduler/task_progress.h"

namespace diapason {

struct TaskSchedulerOptions : GainOptions {
  int64_t trials = 1000;  // of all tasks, restored ones included
  double epsilon = 0.05;
  uint64_t seed = 0;
  int max_rounds_without_result = 4;  // until a task that always fails is given up
  int64_t patience = 768;             // trials without a gain of 0.1% until a task rests
  // Ends the run when the objective is expected to fall by less than this share over the next tenth of the trials so
  // far (at least a round a task); 0: never.
  double early_stop = 0;
};

enum class StopReason : uint8_t { kNone, kTrials, kNoGain, kTasksDone, kTargets };
const char* StopReasonText(StopReason reason);

class TaskScheduler {
 public:
  TaskScheduler(std::vector<ScheduledTask> tasks, Objective objective, TaskSchedulerOptions options);

  // A trial of an earlier run, in its order: `best` is the best of the task including it, 0 while there is none.
  // `of_this_run`: of the very run that is resumed, so that its gains count for its end.
  void Restore(int task, double best, bool of_this_run = false);
  // All that can be restored is, and what is under way is adopted.
  void Settle();
  // The search has nothing more of a task.
  void Exhaust(int task) { progress_.SetDone(task); }

  struct Round {
    int task = 0;
    int trials = 0;
  };
  // The next round, whose trials count as in flight from now on. Nothing when the run is over (reason() says why) or
  // when every task that could continue has `max_in_flight` trials in flight already (reason() is kNone: ask again
  // after Report).
  std::optional<Round> Next(int max_in_flight);
  // So many trials of a task, proposed by an earlier run, are in flight; returns how many of them the limit allows.
  int64_t Adopt(int task, int64_t trials);
  // The search found fewer candidates than asked for; a task of which it found none is done.
  void Shrink(int task, int asked, int found);
  // One trial ended; `best` as in Restore. Trials lost to the infrastructure do not count and are given back.
  void Report(int task, double best);
  void Lost(int task);
  // The best of a task proved wrong: what is left.
  void Refute(int task, double best);

  StopReason reason() const { return reason_; }
  int64_t trials() const { return progress_.trials(); }  // that ended, restored ones included
  int64_t in_flight() const { return progress_.in_flight(); }
  int64_t task_trials(int task) const { return progress_[task].trials; }
  double best(int task) const { return progress_[task].best; }
  // How often the networks run it with the best fusion of each so far; by choice, that alternative.
  double Weight(int task) const { return objective_.Weight(task, progress_.Latencies()); }
  std::vector<int> BestAlternatives() const { return objective_.BestAlternatives(progress_.Latencies()); }
  bool done(int task) const { return progress_[task].done; }
  // Value of the objective; nothing while a task of the default fusion has no result.
  std::optional<double> Value() const;
  // Expected relative fall of the objective over the next tenth of the trials; 1 while unknown.
  double ExpectedGain() const;

 private:
  void AddMoment();
  void CheckDone(int task);
  std::optional<int> Choose(const std::vector<int>& open) const;
  std::optional<Round> End(StopReason reason);
  bool Complete() const;
  bool MayGoOn(int task, const std::vector<double>& latencies) const;

  const Objective objective_;
  const TaskSchedulerOptions options_;
  const TaskGain gain_;
  std::vector<bool> optional_;  // by task
  RunProgress progress_;
  Convergence convergence_;  // since all tasks have a result
  StopReason reason_ = StopReason::kNone;
};

}  // namespace diapason
