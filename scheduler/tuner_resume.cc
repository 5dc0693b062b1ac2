// Going on where an earlier run was cut off. What it knew is restored in the order in which it learned it; the search
// that was under way begins again with what it knew then; and what was proposed and not measured is measured first. So
// what is proposed is what the run would have proposed had it not been cut off, for the same results in the same order.
//
// With what was not written down there is no such promise: verdicts that came while a search ran count from the
// beginning, and so do records that another run adds for the same workload.
#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "scheduler/tuner_impl.h"

namespace diapason {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

}  // namespace

struct Tuner::Impl::Restored {
  int task;
  TuningRecord record;
};

// What an earlier run has left beside the history.
struct Tuner::Impl::UnderWay {
  std::optional<BegunSearch> begun;
  int begun_task = -1;
};

// Those of all tasks, in the order in which they were stored; those that are to be replayed are put aside.
absl::StatusOr<std::vector<Tuner::Impl::Restored>> Tuner::Impl::LoadRecords(int64_t continued_from) {
  std::vector<Restored> all;
  for (const auto& task : tasks_) {
    ASSIGN_OR_RETURN(
        std::vector<TuningRecord> records,
        history_->ForWorkload(task->task().workload_key, options_.facts.model, options_.target.ToString()));
    for (TuningRecord& record : records) {
      if (!SpeaksOfCandidate(record.outcome)) continue;
      if (record.created_at < continued_from) {
        all.push_back({task->id(), std::move(record)});
      } else if (replay_.try_emplace({task->id(), record.configuration_hash}, record).second) {
        ++to_replay_[task->id()];
      }
    }
  }
  std::sort(all.begin(), all.end(), [](const Restored& a, const Restored& b) { return a.record.id < b.record.id; });
  return all;
}

std::vector<Sample> Tuner::Impl::RestoreUntil(int64_t id, const std::vector<Restored>& records, size_t* next) {
  std::vector<Sample> samples;
  for (; *next < records.size() && records[*next].record.id <= id; ++*next) {
    const auto& [number, record] = records[*next];
    TaskState& task = *tasks_[number];
    const int before = task.Best(false);
    if (!task.Restore(record, &samples)) continue;
    ++next_trial_[number];
    known_record_ = record.id;
    if (scheduled_as_[number] < 0) continue;
    const bool of_this_run = record.created_at >= began_;
    scheduler_->Restore(scheduled_as_[number], task.BestSeconds(), of_this_run);
    if (!of_this_run) continue;
    ++measured_;
    ++replays_;
    if (task.Best(false) != before) gain_at_ = measured_;
  }
  return samples;
}

absl::StatusOr<Tuner::Impl::UnderWay> Tuner::Impl::LoadRounds(const std::vector<Restored>& records) {
  UnderWay under_way;
  if (options_.rounds == nullptr) return under_way;
  const std::string target = options_.target.ToString();
  // -1: not tuned here.
  const auto task_of = [&](const auto& one) {
    if (one.target != target || one.device_model != options_.facts.model) return -1;
    for (int id : selected_)
      if (tasks_[id]->task().workload_key == one.workload_key) return id;
    return -1;
  };
  ASSIGN_OR_RETURN(const std::vector<SearchMemory> memories, options_.rounds->LoadMemories(options_.rounds_run));
  for (const SearchMemory& memory : memories) {
    const int id = task_of(memory);
    if (id < 0) continue;
    tasks_[id]->Remember(memory);
    if (memory.exhausted) scheduler_->Exhaust(scheduled_as_[id]);
  }
  std::set<std::pair<int, uint64_t>> seen;
  for (const Restored& one : records) seen.emplace(one.task, one.record.configuration_hash);
  ASSIGN_OR_RETURN(const std::vector<ProposedTrial> trials, options_.rounds->Load(options_.rounds_run));
  for (const ProposedTrial& trial : trials) {
    const int id = task_of(trial);
    if (id < 0) continue;
    TaskState& task = *tasks_[id];
    task.SkipRounds(trial.round);
    const std::optional<Candidate> candidate = task.Find(trial.sketch, trial.configuration);
    if (!candidate.has_value()) continue;
    task.Adopt(*candidate);
    if (!seen.emplace(id, candidate->hash).second) continue;
    under_way_.emplace_back(id, MakeProposal(task, *candidate));
    under_way_.back().second.record.predicted = trial.predicted;
  }
  ASSIGN_OR_RETURN(under_way.begun, options_.rounds->LoadBegun(options_.rounds_run));
  if (under_way.begun.has_value()) under_way.begun_task = task_of(*under_way.begun);
  // A limit that was lowered meanwhile holds.
  const auto left = options_.trials - static_cast<int64_t>(records.size() + under_way_.size());
  if (under_way.begun_task < 0 || under_way.begun->asked > left || under_way.begun->asked < 1) under_way.begun.reset();
  return under_way;
}

void Tuner::Impl::LoadModel() {
  if (options_.model_path.empty()) return;
  const absl::Status loaded = model_->Load(options_.model_path);
  save_model_ = loaded.ok() || absl::IsNotFound(loaded);
  if (!save_model_) Warn(std::string(loaded.message()));
}

absl::Status Tuner::Impl::Resume() {
  ASSIGN_OR_RETURN(const int64_t continued_from, ContinuedFrom());
  if (options_.rounds != nullptr) {
    ASSIGN_OR_RETURN(began_, options_.rounds->Began(options_.rounds_run, absl::GetCurrentTimeNanos()));
  }
  ASSIGN_OR_RETURN(const std::vector<Restored> records, LoadRecords(continued_from));
  ASSIGN_OR_RETURN(const UnderWay under_way, LoadRounds(records));
  RETURN_IF_ERROR(LoadTunedWorkloads(std::min(continued_from, began_)));
  // A default that was lost is proposed by the search like any other.
  std::set<std::pair<int, uint64_t>> there;
  std::set<int> tried;
  for (const Restored& one : records) there.emplace(one.task, one.record.configuration_hash), tried.insert(one.task);
  for (const auto& [id, proposal] : under_way_) there.emplace(id, proposal.record.configuration_hash);
  for (int id : tried) {
    const uint64_t hash = tasks_[id]->default_candidate().hash;
    if (!there.contains({id, hash})) tasks_[id]->Release(hash);
  }
  size_t next = 0;
  const auto restore = [&](int64_t id) {
    std::vector<Sample> samples = RestoreUntil(id, records, &next);
    model_->AddSamples(std::move(samples), known_record_);
  };
  // Nothing is measured meanwhile: the next round may as well know what the history knows.
  const auto train = [&] {
    model_->Train();
    model_->Wait();
  };
  if (under_way.begun.has_value()) {
    const BegunSearch& begun = *under_way.begun;
    restore(begun.trained);
    LoadModel();
    if (begun.trained > 0) train();
    std::shared_ptr<const Ranker> ranker = model_->Current();
    restore(begun.known);
    StartSearch(under_way.begun_task, static_cast<int>(begun.asked), std::move(ranker));
    scheduler_->Adopt(scheduled_as_[under_way.begun_task], begun.asked);
    restore(kAll);
  } else {
    restore(kAll);
    LoadModel();
  }
  train();
  return absl::OkStatus();
}

std::vector<ProposedTrial> Tuner::Impl::Noted(int task, int64_t round, const std::vector<Proposal>& proposals) const {
  std::vector<ProposedTrial> trials;
  for (const Proposal& proposal : proposals) {
    trials.push_back({tasks_[task]->task().workload_key, options_.target.ToString(), options_.facts.model, round,
                      proposal.record.sketch, proposal.record.configuration, proposal.record.predicted});
  }
  return trials;
}

absl::Status Tuner::Impl::NoteDefault(int task, const std::vector<Proposal>& proposals) {
  if (options_.rounds == nullptr) return absl::OkStatus();
  return options_.rounds->Add(options_.rounds_run, Noted(task, 0, proposals));
}

absl::Status Tuner::Impl::NoteRound(const SearchDone& done) {
  if (options_.rounds == nullptr) return absl::OkStatus();
  SearchMemory memory = tasks_[done.task]->memory();
  memory.workload_key = tasks_[done.task]->task().workload_key;
  memory.target = options_.target.ToString();
  memory.device_model = options_.facts.model;
  memory.exhausted = static_cast<int>(done.proposals.size()) < done.asked;
  return options_.rounds->End(options_.rounds_run, Noted(done.task, done.round, done.proposals), memory);
}

// In the order of the proposals, so that they are measured in it.
absl::Status Tuner::Impl::ResumeRounds() {
  std::vector<std::pair<int, Proposal>> under_way = std::exchange(under_way_, {});
  for (size_t i = 0; i < under_way.size();) {
    const int task = under_way[i].first;
    std::vector<Proposal> proposals;
    for (; i < under_way.size() && under_way[i].first == task; ++i) proposals.push_back(std::move(under_way[i].second));
    const int64_t taken = scheduler_->Adopt(scheduled_as_[task], static_cast<int64_t>(proposals.size()));
    proposals.resize(static_cast<size_t>(taken));
    if (!proposals.empty()) RETURN_IF_ERROR(SubmitTrials(task, std::move(proposals)));
  }
  scheduler_->Settle();
  return absl::OkStatus();
}

absl::Status Tuner::Impl::ForgetRounds() {
  return options_.rounds == nullptr ? absl::OkStatus() : options_.rounds->Forget(options_.rounds_run);
}

}  // namespace diapason
