#include "scheduler/tuning/reporter.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"

namespace diapason::tuning {

absl::Status Reporter::ReadCorrection() {
  if (context_.options.latency_network.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<NetworkLatency> latency,
                   context_.history.Latency(context_.options.latency_network, context_.options.target.ToString(),
                                            context_.options.facts.model));
  if (latency.has_value()) correction_ = Correction(latency->measured, latency->tasks);
  return absl::OkStatus();
}

TaskReport Reporter::ReportOf(const TaskState& task) const {
  TaskReport report;
  report.id = task.id();
  report.name = task.task().name;
  report.weight = context_.tasks.scheduled_as[task.id()] >= 0
                      ? context_.tasks.scheduler->Weight(context_.tasks.scheduled_as[task.id()])
                      : task.weight();
  // Those that are still to be replayed are in the history too.
  report.trials = static_cast<int64_t>(task.results().size()) + replays_.left(task.id());
  report.failed = task.results().failed();
  report.in_flight = requests_.waiting(task.id());
  report.selected = context_.tasks.scheduled_as[task.id()] >= 0;
  report.done = !report.selected || context_.tasks.scheduler->done(context_.tasks.scheduled_as[task.id()]);
  if (task.default_seconds() > 0) report.fallback_us = task.default_seconds() * 1e6;
  int best = task.results().Best(true);
  report.verified = best >= 0;
  if (best < 0) best = task.results().Best(false);
  if (best < 0) return report;
  const TrialResult& result = task.results()[best];
  report.best_us = result.seconds * 1e6;
  report.gflops_per_s = task.flops() / result.seconds / 1e9;
  report.best_record = result.record;
  report.sketch = result.sketch;
  report.rewrite = result.sketch.substr(0, result.sketch.find('/'));
  return report;
}

double Reporter::AnalyticError() const {
  double measured = 0, analytic = 0;
  for (const auto& task : context_.tasks.all) {
    if (task->default_seconds() <= 0) continue;
    measured += task->default_seconds();
    analytic += task->default_candidate().analytic_seconds;
  }
  return measured > 0 && analytic > 0 ? measured / analytic : 1;
}

void Reporter::AddTasks(TuneReport& report) const {
  double best = 0, before = 0;
  bool all_best = true, all_default = true;
  const double analytic_error = AnalyticError();
  for (const auto& task : context_.tasks.all) {
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
  report.alternatives.assign(context_.options.choices.size(), 0);
  const std::vector<int> alternatives = context_.tasks.scheduler->BestAlternatives();
  for (size_t c = 0; c < alternatives.size(); ++c) report.alternatives[context_.tasks.choices[c]] = alternatives[c];
  if (all_best) report.tasks_us = best;
  if (all_best) report.estimated_us = best * correction_;
  if (all_default) report.estimated_fallback_us = before * correction_;
}

void Reporter::AddTimes(TuneReport& report) const {
  report.measured = results_.measured();
  report.in_flight = static_cast<int64_t>(requests_.size());
  report.seconds = clock_.Seconds();
  if (report.seconds > 0) report.trials_per_s = static_cast<double>(report.measured) / report.seconds;
  report.stages = context_.stages;
  const TrainingStats training = context_.tasks.model->stats();
  report.stages.train_s = training.seconds;
  report.stages.trainings = training.trainings;
  if (context_.stages.search_s > 0)
    report.stages.candidates_per_s = static_cast<double>(context_.stages.candidates) / context_.stages.search_s;
  report.errors.assign(results_.errors().begin(), results_.errors().end());
  std::stable_sort(report.errors.begin(), report.errors.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  if (report.trials_per_s > 0)
    report.seconds_left =
        std::max(0.0, static_cast<double>(context_.options.trials - report.trials) / report.trials_per_s);
  if (context_.options.seconds > 0) {
    const double left = std::max(0.0, context_.options.seconds - report.seconds);
    report.seconds_left = std::min(left, report.seconds_left.value_or(left));
  }
}

TuneReport Reporter::Report() const {
  TuneReport report;
  AddTasks(report);
  AddTimes(report);
  return report;
}

void Reporter::Tick() {
  const double now = MonotonicSeconds();
  if (context_.listener == nullptr || now - last_tick_ < kTickSeconds) return;
  last_tick_ = now;
  context_.listener->OnTick(Report());
}

}  // namespace diapason::tuning
