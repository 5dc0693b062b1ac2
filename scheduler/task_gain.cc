#include "scheduler/task_gain.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

// A member that has had this many rounds more than all others and is still slow does not belong to its group.
constexpr double kRoundsToLeaveGroup = 5;

// Logarithm to the golden ratio of the flops, as Ansor groups.
int GroupOf(const ScheduledTask& task) { return static_cast<int>(std::log(task.flops + 1) / std::log(1.618)); }

}  // namespace

TaskGain::TaskGain(std::vector<ScheduledTask> tasks, const GainOptions& options)
    : tasks_(std::move(tasks)), options_(options) {
  DIAPASON_CHECK(options_.round_size >= 1);
}

double TaskGain::Expected(int task, const RunProgress& progress) const {
  return options_.alpha * Backward(progress[task]) + (1 - options_.alpha) * Forward(task, progress);
}

double TaskGain::Backward(const TaskProgress& task) const {
  const auto window = static_cast<size_t>(options_.backward_window * options_.round_size);
  if (task.history.size() <= window) return 0;
  const double before = task.history[task.history.size() - 1 - window];
  return before > 0 ? (before - task.best) / options_.backward_window : 0;
}

bool TaskGain::Similar(int a, int b) const {
  return tasks_[a].kind == tasks_[b].kind && GroupOf(tasks_[a]) == GroupOf(tasks_[b]);
}

double TaskGain::Forward(int task, const RunProgress& progress) const {
  const TaskProgress& own = progress[task];
  const double rounds = static_cast<double>(own.had()) / options_.round_size;
  const double optimistic = own.best / std::max(rounds, 1.0);
  if (tasks_[task].kind.empty() || tasks_[task].flops <= 0) return optimistic;
  double best_rate = 0;
  int64_t most_trials = 0;
  for (int other = 0; other < progress.size(); ++other) {
    if (other == task || progress[other].best == 0 || !Similar(other, task)) continue;
    best_rate = std::max(best_rate, tasks_[other].flops / progress[other].best);
    most_trials = std::max(most_trials, progress[other].trials);
  }
  const double rate = tasks_[task].flops / own.best;
  if (best_rate <= rate * options_.beta) return optimistic;
  if (static_cast<double>(own.trials - most_trials) > kRoundsToLeaveGroup * options_.round_size) return optimistic;
  return std::max(optimistic, own.best - options_.beta * tasks_[task].flops / best_rate);
}

}  // namespace diapason
