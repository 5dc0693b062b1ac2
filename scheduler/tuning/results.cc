#include "scheduler/tuning/results.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace diapason::tuning {

Results::Results(const RunContext& context, OnRecord on_record)
    : context_(context), on_record_(std::move(on_record)), next_trial_(context.tasks.all.size()) {}

void Results::Add(Pending pending, const MeasureOutcome& outcome) {
  TuningRecord record = std::move(pending.proposal.record);
  record.run_id = run_;
  record.target = context_.options.target.ToString();
  record.device_model = outcome.device_model.empty() ? context_.options.facts.model : outcome.device_model;
  record.device_uuid = outcome.device_model.empty() ? context_.options.facts.uuid : outcome.device_uuid;
  record.driver = outcome.driver.empty() ? context_.options.facts.driver : outcome.driver;
  record.compiler = outcome.compiler;
  record.clocks = outcome.clocks;
  record.outcome = outcome.outcome;
  record.seed = context_.options.seed;
  record.trial = next_trial_[pending.task]++;
  const Timing* timing = record.timing();
  const bool broken = timing != nullptr && (timing->samples.empty() || !(MedianSeconds(*timing) > 0) ||
                                            !std::isfinite(MedianSeconds(*timing)));
  if (broken)
    record.outcome = MeasureError{ErrorKind::kUnknown, MeasureStage::kRun, "the measurement gave no time above 0"};
  if (timing != nullptr && !broken) {
    context_.stages.build_s += timing->build_seconds;
    context_.stages.run_s += timing->run_seconds;
  }
  finished_.push_back({pending.task, std::move(record), pending.proposal.space, pending.order});
}

void Results::AddReplayed(int task, TuningRecord record, const Proposal& proposal) {
  next_trial_[task] = std::max(next_trial_[task], record.trial + 1);
  stored_.push_back({task, std::move(record), proposal.space, proposal.order, /*replayed=*/true});
}

void Results::Restore(int id, const TuningRecord& record, bool of_this_run, std::vector<Sample>* samples) {
  TaskState& task = context_.tasks.at(id);
  const int before = task.results().Best(false);
  if (!task.Restore(record, samples)) return;
  ++next_trial_[id];
  known_record_ = record.id;
  const int scheduled = context_.tasks.scheduled_as[id];
  if (scheduled < 0) return;
  context_.tasks.scheduler->Restore(scheduled, task.results().BestSeconds(), of_this_run);
  if (!of_this_run) return;
  ++measured_;
  ++replays_;
  if (task.results().Best(false) != before) gain_at_ = measured_;
}

absl::Status Results::Store() {
  if (finished_.empty()) return absl::OkStatus();
  std::vector<TuningRecord> records;
  for (const Finished& finished : finished_) records.push_back(finished.record);
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, context_.history.Append(records));
  for (size_t i = 0; i < finished_.size(); ++i) {
    finished_[i].record.id = ids[i];
    stored_.push_back(std::move(finished_[i]));
  }
  finished_.clear();
  return absl::OkStatus();
}

void Results::Conclude() {
  std::vector<Sample> samples;
  std::vector<Finished> stored = std::exchange(stored_, {});
  if (context_.options.synchronous)
    std::sort(stored.begin(), stored.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
  for (const Finished& one : stored) {
    const TuningRecord& record = one.record;
    known_record_ = std::max(known_record_, record.id);
    TaskState& task = context_.tasks.at(one.task);
    TrialResult result;
    result.record = record.id;
    result.hash = record.configuration_hash;
    result.space = one.space;
    result.configuration = record.configuration;
    result.schedule = record.schedule;
    result.sketch = record.sketch;
    if (const Timing* timing = record.timing()) {
      result.seconds = MedianSeconds(*timing);
      result.stopped_early = timing->stopped_early;
      result.samples = static_cast<int>(timing->samples.size());
    } else {
      CountError(record.error()->kind);
    }
    const int before = task.results().Best(false);
    samples.push_back(task.Add(std::move(result)));
    ++measured_;
    if (one.replayed) ++replays_;
    if (task.results().Best(false) != before) gain_at_ = measured_;
    context_.tasks.scheduler->Report(context_.tasks.scheduled_as[one.task], task.results().BestSeconds());
    if (!one.replayed) on_record_(one.task, record, task.results().Best(false) != before);
  }
  context_.tasks.model->AddSamples(std::move(samples), known_record_);
}

void Results::Judge(int id, int result, const Verdict& verdict) {
  TaskState& task = context_.tasks.at(id);
  if (std::optional<Sample> sample = task.SetVerdict(result, verdict.ok)) {
    std::vector<Sample> samples;
    samples.push_back(*std::move(sample));
    context_.tasks.model->AddSamples(std::move(samples));
  }
  if (verdict.ok) return;
  CountError(ErrorKind::kWrongResult);
  context_.tasks.scheduler->Refute(context_.tasks.scheduled_as[id], task.results().BestSeconds());
}

}  // namespace diapason::tuning
