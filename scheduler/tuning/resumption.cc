#include "scheduler/tuning/resumption.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

#include "base/check.h"

namespace diapason::tuning {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

}  // namespace

absl::StatusOr<std::vector<Resumption::Restored>> Resumption::LoadRecords(int64_t continued_from) {
  std::vector<Restored> all;
  for (const auto& task : context_.tasks.all) {
    ASSIGN_OR_RETURN(std::vector<TuningRecord> records,
                     context_.history.ForWorkload(task->task().workload_key, context_.options.facts.model,
                                                  context_.options.target.ToString()));
    for (TuningRecord& record : records) {
      if (!SpeaksOfCandidate(record.outcome)) continue;
      if (record.created_at < continued_from) {
        all.push_back({task->id(), std::move(record)});
      } else {
        replays_.Put(task->id(), std::move(record));
      }
    }
  }
  std::sort(all.begin(), all.end(), [](const Restored& a, const Restored& b) { return a.record.id < b.record.id; });
  return all;
}

void Resumption::RestoreUntil(int64_t id, const std::vector<Restored>& records, size_t* next) {
  std::vector<Sample> samples;
  for (; *next < records.size() && records[*next].record.id <= id; ++*next) {
    const auto& [task, record] = records[*next];
    results_.Restore(task, record, record.created_at >= began_, &samples);
  }
  context_.tasks.model->AddSamples(std::move(samples), results_.known_record());
}

void Resumption::LoadModel() {
  if (context_.options.model_path.empty()) return;
  const absl::Status loaded = context_.tasks.model->Load(context_.options.model_path);
  keeps_model_ = loaded.ok() || absl::IsNotFound(loaded);
  if (!keeps_model_ && context_.listener != nullptr) context_.listener->OnWarning(std::string(loaded.message()));
}

void Resumption::ReleaseLostDefaults(const std::vector<Restored>& records) const {
  std::set<std::pair<int, uint64_t>> there;
  std::set<int> tried;
  for (const Restored& one : records) there.emplace(one.task, one.record.configuration_hash), tried.insert(one.task);
  for (const auto& [id, proposal] : under_way_) there.emplace(id, proposal.record.configuration_hash);
  for (int id : tried) {
    const uint64_t hash = context_.tasks.at(id).default_candidate().hash;
    if (!there.contains({id, hash})) context_.tasks.at(id).search().Release(hash);
  }
}

absl::Status Resumption::Run(const StartSearch& start_search) {
  ASSIGN_OR_RETURN(const int64_t continued_from, BeginningOf(context_.options.continued_runs, context_.history));
  ASSIGN_OR_RETURN(began_, notes_.Began());
  ASSIGN_OR_RETURN(const std::vector<Restored> records, LoadRecords(continued_from));
  std::vector<RoundNotes::Measured> measured;
  for (const Restored& one : records) measured.emplace_back(one.task, one.record.configuration_hash);
  ASSIGN_OR_RETURN(RoundNotes::UnderWay under_way, notes_.Load(measured));
  under_way_ = std::move(under_way.proposals);
  RETURN_IF_ERROR(warm_.Load(std::min(continued_from, began_)));
  ReleaseLostDefaults(records);
  size_t next = 0;
  // Nothing is measured meanwhile: the next round may as well know what the history knows.
  const auto train = [this] {
    context_.tasks.model->Train();
    context_.tasks.model->Wait();
  };
  if (under_way.begun.has_value()) {
    const BegunSearch& begun = *under_way.begun;
    RestoreUntil(begun.trained, records, &next);
    LoadModel();
    if (begun.trained > 0) train();
    std::shared_ptr<const Ranker> ranker = context_.tasks.model->Current();
    RestoreUntil(begun.known, records, &next);
    start_search(under_way.begun_task, static_cast<int>(begun.asked), std::move(ranker));
    context_.tasks.scheduler->Adopt(context_.tasks.scheduled_as[under_way.begun_task], begun.asked);
    RestoreUntil(kAll, records, &next);
  } else {
    RestoreUntil(kAll, records, &next);
    LoadModel();
  }
  train();
  return absl::OkStatus();
}

}  // namespace diapason::tuning
