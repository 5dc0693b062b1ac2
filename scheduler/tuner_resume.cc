// Going on with the rounds that were under way when an earlier run was cut off: what it had proposed and not measured is
// measured first, and the searches number their rounds, which their random numbers come from, on from its.
#include <algorithm>
#include <set>
#include <utility>

#include "compiler/tensor/check.h"
#include "db/rounds.h"
#include "scheduler/tuner_impl.h"

namespace diapason {

absl::Status Tuner::Impl::NoteRound(int task, int64_t round, const std::vector<Proposal>& proposals) {
  if (options_.rounds == nullptr) return absl::OkStatus();
  std::vector<ProposedTrial> trials;
  for (const Proposal& proposal : proposals) {
    ProposedTrial& trial = trials.emplace_back();
    trial.workload_key = tasks_[task]->task().workload_key;
    trial.target = options_.target.ToString();
    trial.device_model = options_.facts.model;
    trial.round = round;
    trial.sketch = proposal.record.sketch;
    trial.decisions = proposal.record.decisions;
    trial.predicted = proposal.record.predicted;
  }
  return options_.rounds->Add(options_.rounds_run, trials);
}

absl::Status Tuner::Impl::ResumeRounds() {
  if (options_.rounds == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<ProposedTrial> trials, options_.rounds->Load(options_.rounds_run));
  const std::string target = options_.target.ToString();
  for (int id : selected_) {
    TaskState& task = *tasks_[id];
    std::set<uint64_t> seen;
    for (const TrialResult& result : task.results()) seen.insert(result.hash);
    std::vector<Proposal> proposals;
    for (const ProposedTrial& trial : trials) {
      if (trial.workload_key != task.task().workload_key || trial.target != target ||
          trial.device_model != options_.facts.model)
        continue;
      task.SkipRounds(trial.round);
      const std::optional<Candidate> candidate = task.Find(trial.sketch, trial.decisions);
      if (!candidate.has_value() || !seen.insert(candidate->hash).second) continue;
      proposals.push_back(MakeProposal(task, *candidate));
      proposals.back().record.predicted = trial.predicted;
    }
    const int64_t taken = scheduler_->Adopt(scheduled_as_[id], static_cast<int64_t>(proposals.size()));
    proposals.resize(static_cast<size_t>(taken));
    for (const Proposal& proposal : proposals) task.Adopt(proposal.record.decision_hash);
    if (!proposals.empty()) RETURN_IF_ERROR(SubmitTrials(id, std::move(proposals)));
  }
  return absl::OkStatus();
}

absl::Status Tuner::Impl::ForgetRounds() {
  return options_.rounds == nullptr ? absl::OkStatus() : options_.rounds->Forget(options_.rounds_run);
}

}  // namespace diapason
