#include "scheduler/tuning/warm_starts.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "compiler/tensor/serialize.h"

namespace diapason::tuning {
namespace {

// Share of a round: of the first ones, and of those later, when the other tasks have found something better meanwhile.
constexpr int kFirstShare = 4, kLaterShare = 16;

std::vector<Tuned> FastestOf(const std::vector<TuningRecord>& ranked) {
  FewTuned fastest;
  for (size_t i = 0; i < ranked.size() && !fastest.full(); ++i)
    fastest.Offer(ranked[i].sketch, ranked[i].configuration);
  return fastest.tuned();
}

// Those made before, not refuted, the fastest first.
std::vector<TuningRecord> Ranked(std::vector<TuningRecord> records, int64_t before) {
  std::erase_if(records, [before](const TuningRecord& record) {
    return record.created_at >= before || record.timing() == nullptr || IsRefuted(record.verified);
  });
  std::stable_sort(records.begin(), records.end(), [](const TuningRecord& a, const TuningRecord& b) {
    return std::make_pair(a.timing()->stopped_early, MedianSeconds(*a.timing())) <
           std::make_pair(b.timing()->stopped_early, MedianSeconds(*b.timing()));
  });
  return records;
}

}  // namespace

absl::Status WarmStarts::Load(int64_t before) {
  if (!context_.options.warm_start) return absl::OkStatus();
  std::set<std::string> kinds, known;
  for (const auto& task : context_.tasks.all) {
    kinds.insert(task->shape().kind);
    known.insert(task->task().workload_key);
  }
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> workloads, context_.history.NetworkTasks());
  for (const NetworkTask& workload : workloads) {
    if (!known.insert(workload.workload_key).second) continue;
    const absl::StatusOr<ComputeDag> dag = ParseDag(workload.workload);
    if (!dag.ok()) continue;  // of a newer version
    TunedWorkload tuned{ShapeOf(*dag), {}, workload.workload_key};
    if (kinds.count(tuned.shape.kind) == 0) continue;
    ASSIGN_OR_RETURN(std::vector<TuningRecord> records,
                     context_.history.ForWorkload(workload.workload_key, context_.options.facts.model,
                                                  context_.options.target.ToString()));
    tuned.best = FastestOf(Ranked(std::move(records), before));
    if (!tuned.best.empty()) tuned_before_.push_back(std::move(tuned));
  }
  return absl::OkStatus();
}

std::vector<Suggestion> WarmStarts::For(int id, int trials) const {
  if (!context_.options.warm_start) return {};
  std::vector<TunedWorkload> tuned;
  for (const auto& other : context_.tasks.all)
    if (other->id() != id) tuned.push_back({other->shape(), other->results().Fastest(), other->task().workload_key});
  for (const auto* before : {&tuned_before_, &context_.options.tuned_elsewhere})
    tuned.insert(tuned.end(), before->begin(), before->end());
  const TaskState& task = context_.tasks.at(id);
  std::vector<Suggestion> suggestions = Suggest(task.space(), task.shape(), tuned, task.task().workload_key);
  std::erase_if(suggestions, [&task](const Suggestion& one) {
    return task.Proposed(CandidateHash(task.space().space(one.space).name(), one.configuration));
  });
  const bool first = static_cast<int>(task.results().size()) < 2 * trials;
  const auto most = static_cast<size_t>(std::max(1, trials / (first ? kFirstShare : kLaterShare)));
  if (suggestions.size() > most) suggestions.resize(most);
  return suggestions;
}

}  // namespace diapason::tuning
