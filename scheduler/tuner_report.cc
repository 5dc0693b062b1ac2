#include <algorithm>
#include <utility>

#include "scheduler/tuner_impl.h"

namespace diapason {

TaskReport Tuner::Impl::ReportOf(const TaskState& task) const {
  TaskReport report;
  report.id = task.id();
  report.name = task.task().name;
  report.weight = scheduled_as_[task.id()] >= 0 ? scheduler_->Weight(scheduled_as_[task.id()]) : task.weight();
  // Those that are still to be replayed are in the history too.
  report.trials = static_cast<int64_t>(task.results().size()) + to_replay_[task.id()];
  report.failed = task.failed();
  report.in_flight = trials_pending_[task.id()];
  report.selected = scheduled_as_[task.id()] >= 0;
  report.done = !report.selected || scheduler_->done(scheduled_as_[task.id()]);
  if (task.default_seconds() > 0) report.fallback_us = task.default_seconds() * 1e6;
  int best = task.Best(true);
  report.verified = best >= 0;
  if (best < 0) best = task.Best(false);
  if (best < 0) return report;
  const TrialResult& result = task.results()[best];
  report.best_us = result.seconds * 1e6;
  report.gflops_per_s = task.flops() / result.seconds / 1e9;
  report.best_record = result.record;
  report.sketch = result.sketch;
  report.rewrite = result.sketch.substr(0, result.sketch.find('/'));
  return report;
}

double Tuner::Impl::AnalyticError() const {
  double measured = 0, analytic = 0;
  for (const auto& task : tasks_) {
    if (task->default_seconds() <= 0) continue;
    measured += task->default_seconds();
    analytic += task->default_candidate().analytic_seconds;
  }
  return measured > 0 && analytic > 0 ? measured / analytic : 1;
}

TuneReport Tuner::Impl::Report() const {
  TuneReport report;
  double best = 0, before = 0;
  bool all_best = true, all_default = true;
  const double analytic_error = AnalyticError();
  for (const auto& task : tasks_) {
    report.tasks.push_back(ReportOf(*task));
    TaskReport& one = report.tasks.back();
    const double expected_default =
        one.fallback_us.value_or(analytic_error * task->default_candidate().analytic_seconds * 1e6);
    one.expected_us = one.best_us.value_or(expected_default);
    report.expected_us += one.weight * one.expected_us * correction_;
    report.expected_fallback_us += task->weight() * expected_default * correction_;
    all_best = all_best && (one.best_us || one.weight == 0);
    all_default = all_default && (one.fallback_us || task->weight() == 0);
    best += one.weight * one.best_us.value_or(0);
    before += task->weight() * one.fallback_us.value_or(0);
    if (!one.selected) continue;
    report.trials += one.trials;
    report.failed += one.failed;
  }
  report.ways.assign(options_.choices.size(), 0);
  const std::vector<int> ways = scheduler_->BestWays();
  for (size_t c = 0; c < ways.size(); ++c) report.ways[choices_[c]] = ways[c];
  if (all_best) report.tasks_us = best;
  if (all_best) report.estimated_us = best * correction_;
  if (all_default) report.estimated_fallback_us = before * correction_;
  report.measured = measured_ - replays_;
  report.in_flight = static_cast<int64_t>(pending_.size());
  report.seconds = options_.clock() - started_;
  if (report.seconds > 0) report.trials_per_s = static_cast<double>(report.measured) / report.seconds;
  report.stages = stages_;
  const TrainingStats training = model_->stats();
  report.stages.train_s = training.seconds;
  report.stages.trainings = training.trainings;
  if (stages_.search_s > 0) report.stages.candidates_per_s = static_cast<double>(stages_.candidates) / stages_.search_s;
  report.errors.assign(errors_.begin(), errors_.end());
  std::stable_sort(report.errors.begin(), report.errors.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (report.trials_per_s > 0)
    report.seconds_left = std::max(0.0, static_cast<double>(options_.trials - report.trials) / report.trials_per_s);
  if (options_.seconds > 0) {
    const double left = std::max(0.0, options_.seconds - report.seconds);
    report.seconds_left = std::min(left, report.seconds_left.value_or(left));
  }
  return report;
}

void Tuner::Impl::Tick() {
  const double now = MonotonicSeconds();
  if (listener_ == nullptr || now - last_tick_ < kTickSeconds) return;
  last_tick_ = now;
  listener_->OnTick(Report());
}

}  // namespace diapason
