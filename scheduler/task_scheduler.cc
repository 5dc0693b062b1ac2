#include "scheduler/task_scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace diapason {
namespace {

constexpr double kGain = 0.999;  // a best below this share of the one before is a gain

// A member that has had this many rounds more than all others and is still slow does not belong to its group.
constexpr double kRoundsToLeaveGroup = 5;

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
    : tasks_(std::move(tasks)), objective_(std::move(objective)), options_(options), states_(tasks_.size()) {
  DIAPASON_CHECK(options_.round_size >= 1);
  for (int task = 0; task < static_cast<int>(tasks_.size()); ++task) optional_.push_back(objective_.IsOptional(task));
}

void TaskScheduler::AddTrial(int task, double best) {
  State& state = states_[task];
  ++trials_;
  ++state.trials;
  if (best > 0 && (state.best == 0 || best < state.best * kGain)) state.last_gain = state.trials;
  if (best > 0) state.best = best;
  state.history.push_back(state.best);
}

void TaskScheduler::CheckDone(int task) {
  State& state = states_[task];
  if (state.in_flight > 0) return;
  const int64_t limit = static_cast<int64_t>(options_.max_rounds_without_result) * options_.round_size;
  if (state.best == 0 ? state.trials >= limit : state.trials - state.last_gain >= options_.patience) state.done = true;
}

void TaskScheduler::AddMoment() {
  bool complete = true;
  for (size_t task = 0; task < states_.size(); ++task)
    complete = complete && (optional_[task] || states_[task].best > 0 || states_[task].done);
  if (complete) values_.push_back({trials_, objective_.Value(Latencies())});
}

void TaskScheduler::Restore(int task, double best, bool of_this_run) {
  AddTrial(task, best);
  if (of_this_run) AddMoment();
}

void TaskScheduler::Settle() {
  for (int task = 0; task < static_cast<int>(states_.size()); ++task) CheckDone(task);
}

void TaskScheduler::Report(int task, double best) {
  --in_flight_;
  --states_[task].in_flight;
  AddTrial(task, best);
  CheckDone(task);
  AddMoment();
}

void TaskScheduler::Lost(int task) {
  --in_flight_;
  --states_[task].in_flight;
  CheckDone(task);
}

void TaskScheduler::Refute(int task, double best) {
  State& state = states_[task];
  state.best = best;
  if (best == 0) state.done = false;
  // The gains towards the refuted time were none.
  for (double& old : state.history)
    if (old > 0 && (best == 0 || old < best)) old = best;
  // The objective's past holds the refuted time too, and cannot be told apart: forget it.
  values_.clear();
  CheckDone(task);
}

void TaskScheduler::Shrink(int task, int asked, int found) {
  in_flight_ -= asked - found;
  states_[task].in_flight -= asked - found;
  if (found < asked) states_[task].done = true;
}

std::vector<double> TaskScheduler::Latencies() const {
  std::vector<double> latencies;
  for (const State& state : states_) latencies.push_back(state.best);
  return latencies;
}

// Every task that the default fusion needs has a result.
bool TaskScheduler::Complete() const {
  for (size_t task = 0; task < states_.size(); ++task)
    if (!optional_[task] && states_[task].best == 0) return false;
  return true;
}

std::optional<double> TaskScheduler::Value() const {
  return Complete() ? std::optional<double>(objective_.Value(Latencies())) : std::nullopt;
}

// Whether a task that only fusion alternatives have may get trials: first rounds within their share, later ones while
// the way may still win, and all of ways that do not win within that share too.
bool TaskScheduler::MayGoOn(int task, const std::vector<double>& latencies) const {
  constexpr int64_t kShare = 8;  // of the trials, one in so many
  const bool first = Had(task) < options_.round_size;
  if (!first && (states_[task].best == 0 || objective_.Slope(task, latencies) == 0)) return false;
  int64_t had = 0;
  bool usual_goes_on = false;
  for (int other = 0; other < static_cast<int>(tasks_.size()); ++other) {
    if (!optional_[other]) {
      if (states_[other].done) continue;
      if (first && states_[other].trials < options_.round_size) return false;
      usual_goes_on = true;
    } else if (first) {
      had += std::min<int64_t>(Had(other), options_.round_size);
    } else if (objective_.Weight(other, latencies) == 0) {
      had += Had(other);
    }
  }
  if (!usual_goes_on || (first ? Had(task) > 0 : objective_.Weight(task, latencies) > 0)) return true;
  return kShare * (had + options_.round_size) <= trials_ + in_flight_;
}

double TaskScheduler::ExpectedGain() const {
  int64_t live = 0;
  for (size_t task = 0; task < states_.size(); ++task) live += states_[task].done || optional_[task] ? 0 : 1;
  const int64_t window = std::max(trials_ / 10, live * options_.round_size);
  const Moment* before = nullptr;
  for (const Moment& moment : values_)
    if (moment.trials <= trials_ - window) before = &moment;
  if (before == nullptr || before->value <= 0) return 1;
  return (before->value - values_.back().value) / before->value;
}

// Logarithm to the golden ratio of the flops, as Ansor groups.
int TaskScheduler::Group(int task) const {
  return static_cast<int>(std::log(tasks_[task].flops + 1) / std::log(1.618));
}

double TaskScheduler::Forward(int task) const {
  const State& state = states_[task];
  const double rounds = static_cast<double>(state.trials + state.in_flight) / options_.round_size;
  const double optimistic = state.best / std::max(rounds, 1.0);
  if (tasks_[task].kind.empty() || tasks_[task].flops <= 0) return optimistic;
  double best_rate = 0;
  int64_t most_trials = 0;
  for (int other = 0; other < static_cast<int>(tasks_.size()); ++other) {
    if (other == task || states_[other].best == 0) continue;
    if (tasks_[other].kind != tasks_[task].kind || Group(other) != Group(task)) continue;
    best_rate = std::max(best_rate, tasks_[other].flops / states_[other].best);
    most_trials = std::max(most_trials, states_[other].trials);
  }
  const double rate = tasks_[task].flops / state.best;
  if (best_rate <= rate * options_.beta) return optimistic;
  if (static_cast<double>(state.trials - most_trials) > kRoundsToLeaveGroup * options_.round_size) return optimistic;
  return std::max(optimistic, state.best - options_.beta * tasks_[task].flops / best_rate);
}

double TaskScheduler::GainOf(int task, const std::vector<double>& latencies) const {
  const State& state = states_[task];
  double backward = 0;
  const auto window = static_cast<size_t>(options_.backward_window * options_.round_size);
  if (state.history.size() > window) {
    const double before = state.history[state.history.size() - 1 - window];
    if (before > 0) backward = (before - state.best) / options_.backward_window;
  }
  return objective_.Slope(task, latencies) * (options_.alpha * backward + (1 - options_.alpha) * Forward(task));
}

// A task without any result whose turn it is: it may have as large a part of all trials as an even split would give it.
std::optional<int> TaskScheduler::Needy(const std::vector<int>& open) const {
  std::optional<int> needy;
  const bool all_needy = std::all_of(open.begin(), open.end(), [&](int task) { return states_[task].best == 0; });
  const double part = static_cast<double>(trials_ + in_flight_) / static_cast<double>(tasks_.size() + 1);
  for (int task : open) {
    const State& state = states_[task];
    if (state.best > 0) continue;
    if (!all_needy && static_cast<double>(state.trials + state.in_flight + options_.round_size) > part) continue;
    if (!needy || state.trials + state.in_flight < states_[*needy].trials + states_[*needy].in_flight) needy = task;
  }
  return needy;
}

std::optional<int> TaskScheduler::Choose(const std::vector<int>& open) {
  if (const std::optional<int> needy = Needy(open)) return needy;
  std::vector<int> proven;
  for (int task : open)
    if (states_[task].best > 0) proven.push_back(task);
  if (proven.empty()) return std::nullopt;
  // By how far the run is: one that was cut off draws as it would have.
  Random random(options_.seed, 0x7461736b, static_cast<uint64_t>(trials_ + in_flight_));
  if (random.Uniform() < options_.epsilon) return proven[random.Below(static_cast<uint32_t>(proven.size()))];
  const std::vector<double> latencies = Latencies();
  int best = proven.front();
  double best_gain = -1;
  for (int task : proven) {
    const double gain = GainOf(task, latencies);
    const bool fewer = states_[task].trials + states_[task].in_flight < states_[best].trials + states_[best].in_flight;
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
  const int64_t taken = std::clamp<int64_t>(options_.trials - trials_ - in_flight_, 0, trials);
  states_[task].in_flight += taken;
  in_flight_ += taken;
  return taken;
}

std::optional<TaskScheduler::Round> TaskScheduler::Next(int max_in_flight) {
  const int64_t left = options_.trials - trials_ - in_flight_;
  if (left <= 0) return in_flight_ == 0 ? End(StopReason::kTrials) : std::nullopt;
  const auto start = [&](int task, int64_t trials) {
    const int64_t taken = std::min(left, trials);
    states_[task].in_flight += taken;
    in_flight_ += taken;
    return Round{task, static_cast<int>(taken)};
  };

  const std::vector<double> latencies = Latencies();
  std::vector<int> live, open;
  for (int task = 0; task < static_cast<int>(tasks_.size()); ++task) {
    const State& state = states_[task];
    if (state.done || (optional_[task] && !MayGoOn(task, latencies))) continue;
    live.push_back(task);
    if (state.trials + state.in_flight == 0) return start(task, 1);  // its fallback schedule
    if (optional_[task] && Had(task) < options_.round_size) continue;
    if (state.in_flight == 0 || state.in_flight + options_.round_size <= max_in_flight) open.push_back(task);
  }
  if (live.empty()) return in_flight_ == 0 ? End(StopReason::kTasksDone) : std::nullopt;
  bool waits = false;
  for (int task : live) {  // warm-up, stopped early where slower than the fallback schedule
    const int64_t had = states_[task].trials + states_[task].in_flight;
    if (had >= options_.round_size) continue;
    if (states_[task].trials > 0) return start(task, options_.round_size - had);
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
