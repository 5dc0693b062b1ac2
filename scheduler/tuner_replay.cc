// Resuming runs that were interrupted, by replaying them: the search proposes as it did then, and gets its results from
// the history.
#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "scheduler/tuner_impl.h"

namespace diapason {

absl::StatusOr<int64_t> Tuner::Impl::ContinuedFrom() {
  int64_t from = std::numeric_limits<int64_t>::max();
  if (options_.continued_runs.empty()) return from;
  ASSIGN_OR_RETURN(const std::vector<TuningRun> runs, history_->Runs());
  for (const TuningRun& run : runs) {
    const auto& continued = options_.continued_runs;
    if (std::find(continued.begin(), continued.end(), run.id) != continued.end()) from = std::min(from, run.started_at);
  }
  return from;
}

std::vector<Proposal> Tuner::Impl::Replay(int task, std::vector<Proposal> proposals) {
  if (replay_.empty()) return proposals;
  std::vector<Proposal> unknown;
  // Numbered as those that are measured, so that the order is that of the proposals.
  int64_t order = next_request_;
  for (Proposal& proposal : proposals) {
    proposal.order = order++;
    auto known = replay_.find({task, proposal.record.configuration_hash});
    if (known == replay_.end()) {
      unknown.push_back(std::move(proposal));
      continue;
    }
    TuningRecord record = std::move(known->second);
    replay_.erase(known);
    --to_replay_[task];
    next_trial_[task] = std::max(next_trial_[task], record.trial + 1);
    --trials_pending_[task];
    if (record.verified != diapason::Verified::kUnknown) replayed_[record.id] = record;
    stored_.push_back({task, std::move(record), proposal.space, proposal.order, /*replayed=*/true});
  }
  next_request_ = order;
  return unknown;
}

bool Tuner::Impl::ReplayVerdict(int task, int result) {
  const auto known = replayed_.find(tasks_[task]->results()[result].record);
  if (known == replayed_.end()) return false;
  const TuningRecord record = std::move(known->second);
  replayed_.erase(known);
  tasks_[task]->CountVerifyAttempt(result);
  // What a network showed later was not known to the run that is played again.
  const bool ok = record.verified == diapason::Verified::kOk || record.verified == diapason::Verified::kWrongInNetwork;
  Judge(task, result, {ok, record.max_error.value_or(0), record.verify_text});
  return true;
}

}  // namespace diapason
