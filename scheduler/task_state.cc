#include "scheduler/task_state.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/tensor/serialize.h"

namespace diapason {
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
  state->key_ = CandidateHash(absl::StrCat(task.workload_key, "\n", options.facts.model), {});
  state->flops_ = task.dag.flops();
  state->shape_ = ShapeOf(task.dag);
  state->workload_ = std::make_shared<const std::string>(SerializeDag(task.dag));
  state->task_ = std::move(task);
  EvolutionOptions evolution = options.evolution;
  evolution.seed = options.seed;
  state->search_ = std::make_unique<TaskSearch>(state->space_.get(), state->key_, evolution);
  state->default_ = state->search_->Default();
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
  result.hash = CandidateHash(record.sketch, record.configuration);
  if (!IsCandidate(*space_, space, record.configuration)) {
    if (lent_) {
      to_know_.push_back(result.hash);
    } else {
      search_->AddKnown(result.hash);
    }
    Insert(std::move(result));
    return true;
  }
  result.space = space;
  result.configuration = record.configuration;
  samples->push_back(Add(std::move(result)));
  return true;
}

Sample TaskState::Add(TrialResult result) {
  Sample sample = SampleOf(result);
  if (result.hash == default_.hash && result.ran()) default_seconds_ = result.seconds;
  if (lent_) {
    kept_back_.push_back(static_cast<int>(results_.size()));
  } else {
    search_->AddMeasured(result.space, result.configuration, sample.seconds);
  }
  Insert(std::move(result));
  return sample;
}

void TaskState::SetTime(int index, double seconds, int samples) {
  TrialResult& result = results_[index];
  result.seconds = seconds;
  result.stopped_early = false;
  result.samples = samples;
  if (result.hash == default_.hash && result.ran()) default_seconds_ = seconds;
  FindBest();
}

void TaskState::FindBest() {
  best_[0] = best_[1] = -1;
  for (int i = 0; i < static_cast<int>(results_.size()); ++i) {
    if (!results_[i].ran()) continue;
    if (Faster(i, best_[0])) best_[0] = i;
    if (results_[i].verified == Verified::kOk && Faster(i, best_[1])) best_[1] = i;
  }
}

std::optional<Sample> TaskState::SetVerdict(int index, bool ok) {
  TrialResult& result = results_[index];
  const bool ran = result.ran();
  result.verified = ok ? Verified::kOk : Verified::kFailed;
  if (ok && Faster(index, best_[1])) best_[1] = index;
  if (!ok) {
    failed_ += ran ? 1 : 0;
    FindBest();
  }
  if (ok || result.space < 0) return std::nullopt;
  if (result.hash == default_.hash) default_seconds_ = 0;
  if (lent_) {
    kept_back_.push_back(index);
  } else {
    search_->AddMeasured(result.space, result.configuration, 0);
  }
  return SampleOf(result);
}

TaskSearch* TaskState::BeginSearch() {
  DIAPASON_CHECK(!lent_);
  lent_ = true;
  return search_.get();
}

void TaskState::EndSearch() {
  lent_ = false;
  for (int index : kept_back_) {
    const TrialResult& result = results_[index];
    search_->AddMeasured(result.space, result.configuration, result.ran() ? result.seconds : 0);
  }
  for (uint64_t hash : to_release_) search_->Release(hash);
  for (uint64_t hash : to_know_) search_->AddKnown(hash);
  kept_back_.clear();
  to_release_.clear();
  to_know_.clear();
}

void TaskState::Release(uint64_t hash) {
  if (lent_) {
    to_release_.push_back(hash);
  } else {
    search_->Release(hash);
  }
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

std::vector<Tuned> TaskState::Fastest() const {
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(results_.size()); ++i)
    if (results_[i].ran() && results_[i].space >= 0) order.push_back(i);
  std::sort(order.begin(), order.end(), [this](int a, int b) {
    return std::make_tuple(results_[a].stopped_early, results_[a].seconds, results_[a].hash) <
           std::make_tuple(results_[b].stopped_early, results_[b].seconds, results_[b].hash);
  });
  FewTuned fastest;
  for (size_t i = 0; i < order.size() && !fastest.full(); ++i)
    fastest.Offer(results_[order[i]].sketch, results_[order[i]].configuration);
  return fastest.tuned();
}

// Whether result a goes before result b, which may be -1.
bool TaskState::Faster(int a, int b) const {
  if (b < 0) return true;
  return std::make_pair(results_[a].stopped_early, results_[a].seconds) <
         std::make_pair(results_[b].stopped_early, results_[b].seconds);
}

void TaskState::Insert(TrialResult result) {
  const int index = static_cast<int>(results_.size());
  results_.push_back(std::move(result));
  if (!results_[index].ran()) {
    ++failed_;
    return;
  }
  if (Faster(index, best_[0])) best_[0] = index;
  if (results_[index].verified == Verified::kOk && Faster(index, best_[1])) best_[1] = index;
}

}  // namespace diapason
