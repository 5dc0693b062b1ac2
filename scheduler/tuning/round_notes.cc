#include "scheduler/tuning/round_notes.h"

#include <limits>
#include <set>
#include <string>

#include "absl/time/clock.h"
#include "base/check.h"

namespace diapason::tuning {

absl::StatusOr<int64_t> RoundNotes::Began() const {
  if (context_.options.rounds == nullptr) return std::numeric_limits<int64_t>::max();
  return context_.options.rounds->Began(context_.options.rounds_run, absl::GetCurrentTimeNanos());
}

int RoundNotes::TaskOf(const std::string& workload_key, const std::string& target,
                       const std::string& device_model) const {
  if (target != context_.options.target.ToString() || device_model != context_.options.facts.model) return -1;
  for (int id : context_.tasks.selected)
    if (context_.tasks.at(id).task().workload_key == workload_key) return id;
  return -1;
}

absl::StatusOr<RoundNotes::UnderWay> RoundNotes::Load(const std::vector<Measured>& measured) const {
  UnderWay under_way;
  if (context_.options.rounds == nullptr) return under_way;
  const auto task_of = [this](const auto& one) { return TaskOf(one.workload_key, one.target, one.device_model); };
  ASSIGN_OR_RETURN(const std::vector<SearchMemory> memories,
                   context_.options.rounds->LoadMemories(context_.options.rounds_run));
  for (const SearchMemory& memory : memories) {
    const int id = task_of(memory);
    if (id < 0) continue;
    context_.tasks.at(id).search().get().Remember(memory);
    if (memory.exhausted) context_.tasks.scheduler->Exhaust(context_.tasks.scheduled_as[id]);
  }
  std::set<Measured> seen(measured.begin(), measured.end());
  ASSIGN_OR_RETURN(const std::vector<ProposedTrial> trials, context_.options.rounds->Load(context_.options.rounds_run));
  for (const ProposedTrial& trial : trials) {
    const int id = task_of(trial);
    if (id < 0) continue;
    TaskState& task = context_.tasks.at(id);
    task.search().get().SkipRounds(trial.round);
    const std::optional<Candidate> candidate = task.Find(trial.sketch, trial.configuration);
    if (!candidate.has_value()) continue;
    task.search().get().AddProposed(candidate->space, candidate->hash);
    if (!seen.emplace(id, candidate->hash).second) continue;
    under_way.proposals.emplace_back(id, MakeProposal(task, *candidate));
    under_way.proposals.back().second.record.predicted = trial.predicted;
  }
  ASSIGN_OR_RETURN(under_way.begun, context_.options.rounds->LoadBegun(context_.options.rounds_run));
  if (under_way.begun.has_value()) under_way.begun_task = task_of(*under_way.begun);
  // A limit that was lowered meanwhile holds.
  const auto left = context_.options.trials - static_cast<int64_t>(measured.size() + under_way.proposals.size());
  if (under_way.begun_task < 0 || under_way.begun->asked > left || under_way.begun->asked < 1) under_way.begun.reset();
  return under_way;
}

std::vector<ProposedTrial> RoundNotes::Noted(int task, int64_t round, const std::vector<Proposal>& proposals) const {
  std::vector<ProposedTrial> trials;
  for (const Proposal& proposal : proposals) {
    trials.push_back({context_.tasks.at(task).task().workload_key, context_.options.target.ToString(),
                      context_.options.facts.model, round, proposal.record.sketch, proposal.record.configuration,
                      proposal.record.predicted});
  }
  return trials;
}

absl::Status RoundNotes::NoteDefault(int task, const std::vector<Proposal>& proposals) const {
  if (context_.options.rounds == nullptr) return absl::OkStatus();
  return context_.options.rounds->Add(context_.options.rounds_run, Noted(task, 0, proposals));
}

absl::Status RoundNotes::NoteBegun(int task, int trials, int64_t known, int64_t trained) const {
  if (context_.options.rounds == nullptr) return absl::OkStatus();
  return context_.options.rounds->Begin(
      context_.options.rounds_run, {context_.tasks.at(task).task().workload_key, context_.options.target.ToString(),
                                    context_.options.facts.model, trials, known, trained});
}

absl::Status RoundNotes::NoteRound(const SearchDone& done) const {
  if (context_.options.rounds == nullptr) return absl::OkStatus();
  SearchMemory memory = context_.tasks.at(done.task).search().get().memory();
  memory.workload_key = context_.tasks.at(done.task).task().workload_key;
  memory.target = context_.options.target.ToString();
  memory.device_model = context_.options.facts.model;
  memory.exhausted = static_cast<int>(done.proposals.size()) < done.asked;
  return context_.options.rounds->End(context_.options.rounds_run, Noted(done.task, done.round, done.proposals),
                                      memory);
}

absl::Status RoundNotes::Forget() const {
  return context_.options.rounds == nullptr ? absl::OkStatus()
                                            : context_.options.rounds->Forget(context_.options.rounds_run);
}

}  // namespace diapason::tuning
