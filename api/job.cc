#include "api/job.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "diapason/v1/tuning.pb.h"
#include "service/service_client.h"
#include "service/tune_spec.h"

namespace diapason::api {
namespace {

TaskProgress TaskOf(const v1::TaskProgress& task) {
  TaskProgress known;
  known.id = static_cast<int>(task.id());
  known.name = task.name();
  known.count = task.weight();
  known.trials = task.trials();
  known.failed = task.failed();
  if (task.has_best_us()) known.best_us = task.best_us();
  if (task.has_fallback_us()) known.fallback_us = task.fallback_us();
  if (task.flops() > 0 && task.has_best_us()) known.gflops_per_s = task.flops() / task.best_us() * 1e-3;
  known.expected_us = task.expected_us();
  known.verified = task.verified();
  if (task.record() > 0) known.record = task.record();
  known.sketch = task.sketch();
  known.tuned = task.tuned();
  return known;
}

Progress ProgressOf(const v1::JobProgress& p, const v1::TuneSpec& spec) {
  Progress progress;
  progress.elapsed_s = p.seconds();
  progress.trials = p.trials();
  progress.measured = p.measured();
  progress.failed = p.failed();
  progress.trials_per_s = p.trials_per_second();
  progress.built = p.built();
  progress.run = p.run();
  progress.task = static_cast<int>(p.current_task());
  if (spec.trials() > 0) progress.trial_limit = spec.trials();
  if (spec.seconds() > 0) progress.time_limit_s = spec.seconds();
  if (spec.trials() <= 0 && spec.seconds() <= 0) progress.trial_limit = api::kDefaultTrials;
  if (p.has_estimated_us()) progress.estimated_us = p.estimated_us();
  if (p.has_estimated_fallback_us()) progress.estimated_fallback_us = p.estimated_fallback_us();
  progress.expected_us = p.expected_us();
  progress.candidates = p.searched();
  progress.errors.assign(p.errors().begin(), p.errors().end());
  std::sort(progress.errors.begin(), progress.errors.end(),
            [](const auto& a, const auto& b) { return std::tie(b.second, a.first) < std::tie(a.second, b.first); });
  for (const v1::TaskProgress& task : p.tasks()) progress.tasks.push_back(TaskOf(task));
  return progress;
}

}  // namespace

Job JobOf(const v1::Job& job) {
  const v1::TuneSpec& spec = job.spec();
  const v1::JobProgress& p = job.progress();
  Job known;
  known.id = job.id();
  known.state = JobStateName(job);
  known.text = job.text();
  known.owner = job.owner();
  known.model = spec.model();
  known.target = spec.target();
  known.device = spec.device();
  for (const auto& [symbol, sizes] : spec.dims())
    known.dims[symbol] = std::vector<int64_t>(sizes.sizes().begin(), sizes.sizes().end());
  known.labels = {spec.labels().begin(), spec.labels().end()};
  known.priority = spec.priority();
  known.weight = spec.weight();
  known.trials = spec.trials();
  known.seconds = spec.seconds();
  known.submitted_at = job.submitted_at();
  known.started_at = job.started_at();
  known.ended_at = job.ended_at();
  if (job.has_progress()) known.progress = ProgressOf(p, spec);
  if (known.progress.has_value()) known.progress->ended = known.ended();
  known.stop_reason = p.stopped();
  known.warnings = {p.warnings().begin(), p.warnings().end()};
  if (p.has_network_check()) {
    const v1::NetworkCheckOutcome& check = p.network_check();
    known.check = {check.right(),
                   check.text(),
                   check.seconds(),
                   check.latency_us() > 0 ? std::optional<double>(check.latency_us()) : std::nullopt,
                   {check.wrong_records().begin(), check.wrong_records().end()}};
  }
  known.version = job.version();
  return known;
}

}  // namespace diapason::api
