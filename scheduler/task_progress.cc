#include "scheduler/task_progress.h"

namespace diapason {
namespace {

constexpr double kGain = 0.999;  // a best below this share of the one before is a gain

}  // namespace

void RunProgress::Begin(int task, int64_t trials) {
  tasks_[task].in_flight += trials;
  in_flight_ += trials;
}

void RunProgress::Count(int task, double best) {
  TaskProgress& progress = tasks_[task];
  ++trials_;
  ++progress.trials;
  if (best > 0 && (progress.best == 0 || best < progress.best * kGain)) progress.last_gain = progress.trials;
  if (best > 0) progress.best = best;
  progress.history.push_back(progress.best);
}

void RunProgress::Refute(int task, double best) {
  TaskProgress& progress = tasks_[task];
  progress.best = best;
  if (best == 0) progress.done = false;
  for (double& old : progress.history)
    if (old > 0 && (best == 0 || old < best)) old = best;
}

std::vector<double> RunProgress::Latencies() const {
  std::vector<double> latencies;
  for (const TaskProgress& progress : tasks_) latencies.push_back(progress.best);
  return latencies;
}

}  // namespace diapason
