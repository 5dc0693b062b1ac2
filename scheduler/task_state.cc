#include "scheduler/task_state.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "compiler/tensor/serialize.h"

namespace diapason {
namespace {

// Names what is told apart by the times of a task's candidates: those of another device or other caches are not
// comparable.
std::string LabelsOf(const TuningTask& task, const TunerOptions& options) {
  std::string text = absl::StrCat(task.workload_key, "\n", options.facts.model);
  if (options.target.caches != Caches::kNetwork) absl::StrAppend(&text, "\n", NameOf(options.target.caches));
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TaskState>> TaskState::Create(int id, TuningTask task, const TunerOptions& options) {
  std::unique_ptr<TaskState> state(new TaskState);
  state->id_ = id;
  auto space = options.make_space(task.dag, options.target, options.facts);
  if (!space.ok())
    return absl::Status(space.status().code(),
                        absl::StrCat("task ", id, " (", task.name, "): ", space.status().message()));
  if ((*space)->size() == 0)
    return absl::FailedPreconditionError(absl::StrCat("task ", id, " (", task.name, ") has no schedule for ",
                                                      options.target.ToString(), ": leave it out with --tasks"));
  state->space_ = *std::move(space);
  state->key_ = CandidateHash(LabelsOf(task, options), {});
  state->flops_ = task.dag.flops();
  state->shape_ = ShapeOf(task.dag);
  state->workload_ = std::make_shared<const std::string>(SerializeDag(task.dag));
  state->task_ = std::move(task);
  EvolutionOptions evolution = options.evolution;
  evolution.seed = options.seed;
  state->search_ = std::make_unique<LentSearch>(
      std::make_unique<TaskSearch>(state->space_.get(), state->key_, evolution), state->results_);
  state->default_ = state->search_->get().Default();
  return state;
}

double TaskState::weight() const {
  double sum = 0;
  for (const NetworkWeight& weight : task_.weights) sum += weight.weight;
  return sum;
}

Sample TaskState::SampleOf(const TrialResult& result) const {
  Metrics metrics;
  space_->space(result.space).Evaluate(result.configuration, &metrics);
  return {key_,
          result.hash,
          {metrics.features, metrics.features + kNumFeatures},
          metrics.seconds,
          result.ran() ? result.seconds : 0};
}

std::optional<Candidate> TaskState::Find(const std::string& sketch, const std::vector<int32_t>& configuration) const {
  const int space = space_->Find(sketch);
  if (!IsCandidate(*space_, space, configuration)) return std::nullopt;
  Candidate candidate;
  candidate.space = space;
  candidate.configuration = configuration;
  candidate.hash = CandidateHash(sketch, configuration);
  return candidate;
}

bool TaskState::Restore(const TuningRecord& record, std::vector<Sample>* samples) {
  if (!SpeaksOfCandidate(record.outcome)) return false;
  TrialResult result;
  result.record = record.id;
  result.sketch = record.sketch;
  result.schedule = record.schedule;
  result.verified = record.verified;
  if (const Timing* timing = record.timing(); timing != nullptr && !timing->samples.empty()) {
    result.seconds = MedianSeconds(*timing);
    result.stopped_early = timing->stopped_early;
    result.samples = static_cast<int>(timing->samples.size());
  }
  const int space = space_->Find(record.sketch);
  const std::optional<std::vector<int32_t>> candidate = CandidateLike(*space_, space, record.configuration);
  result.hash = CandidateHash(record.sketch, candidate ? *candidate : record.configuration);
  if (!candidate) {
    search_->AddKnown(result.hash);
    results_.Add(std::move(result));
    return true;
  }
  result.space = space;
  result.configuration = *candidate;
  samples->push_back(Add(std::move(result)));
  return true;
}

Sample TaskState::Add(TrialResult result) {
  Sample sample = SampleOf(result);
  if (result.hash == default_.hash && result.ran()) default_seconds_ = result.seconds;
  search_->AddMeasured(results_.Add(std::move(result)));
  return sample;
}

void TaskState::SetTime(int index, double seconds, int samples) {
  results_.SetTime(index, seconds, samples);
  if (results_[index].hash == default_.hash && results_[index].ran()) default_seconds_ = seconds;
}

std::optional<Sample> TaskState::SetVerdict(int index, bool ok) {
  results_.SetVerdict(index, ok);
  const TrialResult& result = results_[index];
  if (ok || result.space < 0) return std::nullopt;
  if (result.hash == default_.hash) default_seconds_ = 0;
  search_->AddMeasured(index);
  return SampleOf(result);
}

TuningRecord TaskState::RecordOf(const Candidate& candidate, const Schedule& schedule, const std::string& bytes) const {
  TuningRecord record;
  record.workload_key = task_.workload_key;
  record.workload = *workload_;
  record.task_name = task_.name;
  record.rewrite = schedule.rewrite.ToString();
  record.sketch = space_->space(candidate.space).name();
  record.schedule = bytes;
  record.configuration = candidate.configuration;
  record.configuration_hash = candidate.hash;
  if (candidate.predicted_seconds > 0 && std::isfinite(candidate.predicted_seconds))
    record.predicted = candidate.predicted_seconds;
  return record;
}

}  // namespace diapason
