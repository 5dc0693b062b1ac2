#include "cli/progress_snapshot.h"

#include <utility>

namespace diapason {

ProgressSnapshot SnapshotOf(const api::Progress& progress) {
  ProgressSnapshot s;
  s.elapsed_s = progress.elapsed_s;
  s.trials = progress.trials;
  s.measured = progress.measured;
  s.failed = progress.failed;
  s.trial_limit = progress.trial_limit;
  s.seconds_limit = progress.time_limit_s;
  s.searched = progress.candidates;
  s.built = progress.built;
  s.run = progress.run;
  s.errors = progress.errors;
  s.current_task = progress.task;
  s.total_seconds = progress.estimated_us.value_or(progress.expected_us) * 1e-6;
  for (const api::TaskProgress& task : progress.tasks) {
    ProgressSnapshot::Task row;
    row.id = task.id;
    row.name = task.name;
    row.count = task.count;
    row.trials = task.trials;
    row.tuned = task.tuned;
    if (task.best_us.has_value()) row.best_seconds = *task.best_us * 1e-6;
    if (task.fallback_us.has_value()) row.fallback_seconds = *task.fallback_us * 1e-6;
    row.expected_seconds = task.expected_us * 1e-6;
    s.tasks.push_back(std::move(row));
  }
  return s;
}

}  // namespace diapason
