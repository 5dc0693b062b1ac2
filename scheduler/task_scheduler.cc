#include "scheduler/task_scheduler.h"

#include <algorithm>
#include <utility>

#include "scheduler/random.h"

namespace diapason {
namespace {

// A task without any result whose turn it is: it may have as large a part of all trials as an even split would give it.
std::optional<int> NeedyOf(const std::vector<int>& open, const RunProgress& all, int round_size) {
  std::optional<int> needy;
  const bool all_needy = std::all_of(open.begin(), open.end(), [&](int task) { return all[task].best == 0; });
  const double part = static_cast<double>(all.had()) / (all.size() + 1);
  for (int task : open) {
    const TaskProgress& progress = all[task];
    if (progress.best > 0) continue;
    if (!all_needy && static_cast<double>(progress.had() + round_size) > part) continue;
    if (!needy || progress.had() < all[*needy].had()) needy = task;
  }
  return needy;
}

}  // namespace

const char* StopReasonText(StopReason reason) {
  switch (reason) {
    case StopReason::kNone: return "running";
    case StopReason::kTrials: return "all trials are done";
    case StopReason::kNoGain: return "little more gain is expected";
    case StopReason::kTasksDone: return "no task has anything left to try";
    case StopReason::kTargets: return "all targets are reached";
  }
  return "";
}

TaskScheduler::TaskScheduler(std::vector<ScheduledTask> tasks, Objective objective, TaskSchedulerOptions options)
    : objective_(std::move(objective)), options_(options), gain_(tasks, options), progress_(tasks.size()) {
  for (int task = 0; task < progress_.size(); ++task) optional_.push_back(objective_.IsOptional(task));
}

void TaskScheduler::CheckDone(int task) {
  const TaskProgress& progress = progress_[task];
  if (progress.in_flight > 0) return;
  const int64_t limit = static_cast<int64_t>(options_.max_rounds_without_result) * options_.round_size;
  if (progress.best == 0 ? progress.trials >= limit : progress.trials - progress.last_gain >= options_.patience)
    progress_.SetDone(task);
}

void TaskScheduler::AddMoment() {
  bool complete = true;
  for (int task = 0; task < progress_.size(); ++task)
    complete = complete && (optional_[task] || progress_[task].best > 0 || progress_[task].done);
  if (complete) convergence_.Add(progress_.trials(), objective_.Value(progress_.Latencies()));
}

void TaskScheduler::Restore(int task, double best, bool of_this_run) {
  progress_.Count(task, best);
  if (of_this_run) AddMoment();
}

void TaskScheduler::Settle() {
  for (int task = 0; task < progress_.size(); ++task) CheckDone(task);
}

void TaskScheduler::Report(int task, double best) {
  progress_.GiveBack(task, 1);
  progress_.Count(task, best);
  CheckDone(task);
  AddMoment();
}

void TaskScheduler::Lost(int task) {
  progress_.GiveBack(task, 1);
  CheckDone(task);
}

void TaskScheduler::Refute(int task, double best) {
  progress_.Refute(task, best);
  // The objective's past holds the refuted time too, and cannot be told apart.
  convergence_.Forget();
  CheckDone(task);
}

void TaskScheduler::Shrink(int task, int asked, int found) {
  progress_.GiveBack(task, asked - found);
  if (found < asked) progress_.SetDone(task);
}

// Every task that the default fusion needs has a result.
bool TaskScheduler::Complete() const {
  for (int task = 0; task < progress_.size(); ++task)
    if (!optional_[task] && progress_[task].best == 0) return false;
  return true;
}

std::optional<double> TaskScheduler::Value() const {
  return Complete() ? std::optional<double>(objective_.Value(progress_.Latencies())) : std::nullopt;
}

// Whether a task that only fusion alternatives have may get trials: first rounds within their share, later ones while
// the alternative may still win, and all of alternatives that do not win within that share too.
bool TaskScheduler::MayGoOn(int task, const std::vector<double>& latencies) const {
  constexpr int64_t kShare = 8;  // of the trials, one in so many
  const bool first = progress_[task].had() < options_.round_size;
  if (!first && (progress_[task].best == 0 || objective_.Slope(task, latencies) == 0)) return false;
  int64_t had = 0;
  bool usual_goes_on = false;
  for (int other = 0; other < progress_.size(); ++other) {
    if (!optional_[other]) {
      if (progress_[other].done) continue;
      if (first && progress_[other].trials < options_.round_size) return false;
      usual_goes_on = true;
    } else if (first) {
      had += std::min<int64_t>(progress_[other].had(), options_.round_size);
    } else if (objective_.Weight(other, latencies) == 0) {
      had += progress_[other].had();
    }
  }
  if (!usual_goes_on || (first ? progress_[task].had() > 0 : objective_.Weight(task, latencies) > 0)) return true;
  return kShare * (had + options_.round_size) <= progress_.had();
}

double TaskScheduler::ExpectedGain() const {
  int64_t live = 0;
  for (int task = 0; task < progress_.size(); ++task) live += progress_[task].done || optional_[task] ? 0 : 1;
  return convergence_.Fall(progress_.trials(), std::max(progress_.trials() / 10, live * options_.round_size));
}

std::optional<int> TaskScheduler::Choose(const std::vector<int>& open) const {
  if (const std::optional<int> needy = NeedyOf(open, progress_, options_.round_size)) return needy;
  std::vector<int> proven;
  for (int task : open)
    if (progress_[task].best > 0) proven.push_back(task);
  if (proven.empty()) return std::nullopt;
  // By how far the run is: one that was cut off draws as it would have.
  Random random(options_.seed, 0x7461736b, static_cast<uint64_t>(progress_.had()));
  if (random.Uniform() < options_.epsilon) return proven[random.Below(static_cast<uint32_t>(proven.size()))];
  const std::vector<double> latencies = progress_.Latencies();
  int best = proven.front();
  double best_gain = -1;
  for (int task : proven) {
    const double gain = objective_.Slope(task, latencies) * gain_.Expected(task, progress_);
    const bool fewer = progress_[task].had() < progress_[best].had();
    if (gain > best_gain || (gain == best_gain && fewer)) {
      best = task;
      best_gain = gain;
    }
  }
  return best;
}

std::optional<TaskScheduler::Round> TaskScheduler::End(StopReason reason) {
  reason_ = reason;
  return std::nullopt;
}

int64_t TaskScheduler::Adopt(int task, int64_t trials) {
  const int64_t taken = std::clamp<int64_t>(options_.trials - progress_.had(), 0, trials);
  progress_.Begin(task, taken);
  return taken;
}

std::optional<TaskScheduler::Round> TaskScheduler::Next(int max_in_flight) {
  const int64_t left = options_.trials - progress_.had();
  if (left <= 0) return progress_.in_flight() == 0 ? End(StopReason::kTrials) : std::nullopt;
  const auto start = [&](int task, int64_t trials) {
    const int64_t taken = std::min(left, trials);
    progress_.Begin(task, taken);
    return Round{task, static_cast<int>(taken)};
  };

  const std::vector<double> latencies = progress_.Latencies();
  std::vector<int> live, open;
  for (int task = 0; task < progress_.size(); ++task) {
    const TaskProgress& progress = progress_[task];
    if (progress.done || (optional_[task] && !MayGoOn(task, latencies))) continue;
    live.push_back(task);
    if (progress.had() == 0) return start(task, 1);  // its fallback schedule
    if (optional_[task] && progress_[task].had() < options_.round_size) continue;
    if (progress.in_flight == 0 || progress.in_flight + options_.round_size <= max_in_flight) open.push_back(task);
  }
  if (live.empty()) return progress_.in_flight() == 0 ? End(StopReason::kTasksDone) : std::nullopt;
  bool waits = false;
  for (int task : live) {  // warm-up, stopped early where slower than the fallback schedule
    const int64_t had = progress_[task].had();
    if (had >= options_.round_size) continue;
    if (progress_[task].trials > 0) return start(task, options_.round_size - had);
    waits = waits || !optional_[task];
  }
  if (waits) return std::nullopt;

  const bool sloping =
      std::any_of(live.begin(), live.end(), [&](int task) { return objective_.Slope(task, latencies) > 0; });
  if (Complete() && !sloping) return End(StopReason::kTargets);
  if (options_.early_stop > 0 && ExpectedGain() < options_.early_stop) return End(StopReason::kNoGain);
  if (open.empty()) return std::nullopt;
  const std::optional<int> task = Choose(open);
  if (!task) return std::nullopt;
  return start(*task, options_.round_size);
}

}  // namespace diapason
