#include "service/job_progress.h"

#include "absl/strings/str_cat.h"
#include "diapason/v1/tuning.pb.h"

namespace diapason {
namespace {

constexpr double kReportInterval = 0.2;
constexpr size_t kMaxWarnings = 5;

void FillTask(const TaskReport& report, double flops, v1::TaskProgress& task) {
  task.set_id(report.id + 1);
  task.set_name(report.name);
  task.set_weight(report.weight);
  task.set_flops(flops);
  task.set_trials(report.trials);
  task.set_failed(report.failed);
  if (report.best_us.has_value()) task.set_best_us(*report.best_us);
  if (report.fallback_us.has_value()) task.set_fallback_us(*report.fallback_us);
  task.set_expected_us(report.expected_us);
  task.set_verified(report.verified);
  task.set_record(report.best_record);
  task.set_sketch(report.sketch);
  task.set_tuned(report.selected);
}

}  // namespace

void EstimateAsMeasured(double latency_us, v1::JobProgress& progress) {
  if (!(progress.estimated_us() > 0)) return;
  const double correction = latency_us / progress.estimated_us();
  progress.set_estimated_us(latency_us);
  if (progress.has_estimated_fallback_us())
    progress.set_estimated_fallback_us(progress.estimated_fallback_us() * correction);
  progress.set_expected_us(progress.expected_us() * correction);
}

void JobListener::OnRound(int task, int, const TuneReport& report) {
  current_task_ = task + 1;
  OnTick(report);
}

void JobListener::OnRecord(int, const TuningRecord& record, bool, const TuneReport& report) {
  ++built_;
  const MeasureError* error = record.error();
  if (error == nullptr || error->stage >= MeasureStage::kLoad) ++run_;
  OnTick(report);
}

void JobListener::OnVerified(int task, int64_t record, bool ok, const std::string& text) {
  if (ok) return;
  OnWarning(absl::StrCat("record ", record, " of task ", task + 1, " (", partition_.tasks[task].name,
                         ") computes a wrong result and is not used: ", text));
}

void JobListener::OnWarning(const std::string& text) {
  warnings_.push_back(text);
  if (warnings_.size() > kMaxWarnings) warnings_.pop_front();
}

void JobListener::OnTick(const TuneReport& report) {
  if (reported_at_ >= 0 && report.seconds - reported_at_ < kReportInterval) return;
  Send(report);
}

void JobListener::OnFinish(const TuneReport& report) { Send(report); }

void JobListener::Send(const TuneReport& report) {
  reported_at_ = report.seconds;
  v1::JobProgress progress;
  progress.set_seconds(report.seconds);
  progress.set_trials(report.trials);
  progress.set_measured(report.measured);
  progress.set_failed(report.failed);
  progress.set_in_flight(report.in_flight);
  progress.set_trials_per_second(report.trials_per_s);
  if (report.estimated_us.has_value()) progress.set_estimated_us(*report.estimated_us);
  if (report.estimated_fallback_us.has_value()) progress.set_estimated_fallback_us(*report.estimated_fallback_us);
  progress.set_expected_us(report.expected_us);
  for (const TaskReport& task : report.tasks)
    FillTask(task, partition_.tasks[task.id].dag.flops(), *progress.add_tasks());
  for (const auto& [kind, count] : report.errors) (*progress.mutable_errors())[kind] = count;
  progress.set_searched(report.stages.candidates);
  progress.set_built(built_);
  progress.set_run(run_);
  progress.set_current_task(current_task_);
  progress.set_stopped(report.stopped);
  for (const std::string& warning : warnings_) progress.add_warnings(warning);
  report_(progress);
}

}  // namespace diapason
