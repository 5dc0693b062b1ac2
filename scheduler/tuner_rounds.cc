#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/tuner_impl.h"

namespace diapason {
namespace {

// The shortest rounds that a small budget is cut into: fewer candidates are not worth a search.
constexpr int kMinRound = 8;
constexpr int kRoundsPerTask = 4;
// Trials a second to plan with while a run is limited by time: what a host of two cores and a GPU at least manage.
constexpr double kPlannedRate = 3, kPlannedGpuRate = 12;

}  // namespace

Proposal MakeProposal(const TaskState& task, const Candidate& candidate) {
  const Schedule schedule = task.space().space(candidate.space).Instantiate(candidate.configuration);
  return {task.RecordOf(candidate, schedule, SerializeSchedule(schedule)), candidate.space, 0};
}

int Tuner::Impl::RoundSize() const {
  double trials = static_cast<double>(options_.trials);
  if (options_.seconds > 0)
    trials = std::min(trials,
                      options_.seconds * (options_.target.kind == TargetKind::kCuda ? kPlannedGpuRate : kPlannedRate));
  // Tasks that only fusion alternatives have are tried within a share of the trials.
  const auto tasks = std::count_if(selected_.begin(), selected_.end(), [this](int id) { return usual_[id]; });
  const auto fair =
      static_cast<int>(std::min(1e6, trials / (kRoundsPerTask * static_cast<double>(std::max<int64_t>(1, tasks)))));
  return std::min(options_.trials_per_round, std::max(kMinRound, fair));
}

// Starts what should be going on: the defaults of all tasks at once, then one search at a time.
absl::Status Tuner::Impl::StartRounds() {
  const int round = RoundSize(), ahead = 2 * measurer_->slots();
  while (!search_runs_) {
    if (options_.synchronous) {
      if (!pending_.empty()) return absl::OkStatus();
      model_->Train();
      model_->Wait();
    } else if (scheduler_->in_flight() > std::max(ahead, round)) {
      return absl::OkStatus();
    }
    // A task's next round is searched when its last one is nearly measured.
    const auto next = scheduler_->Next(round + (options_.synchronous ? 0 : ahead));
    if (!next) return absl::OkStatus();
    const int task = selected_[next->task];
    if (tasks_[task]->results().empty() && next->trials == 1) {
      std::vector<Proposal> proposals;
      proposals.push_back(MakeProposal(*tasks_[task], tasks_[task]->default_candidate()));
      RETURN_IF_ERROR(NoteDefault(task, proposals));
      RETURN_IF_ERROR(SubmitTrials(task, std::move(proposals)));
    } else {
      RETURN_IF_ERROR(BeginSearch(task, next->trials));
    }
  }
  return absl::OkStatus();
}

absl::Status Tuner::Impl::BeginSearch(int id, int trials) {
  std::shared_ptr<const Ranker> ranker = model_->Current();
  int64_t trained = model_->stats().mark;
  // A training may end in between.
  for (auto now = model_->Current(); now != ranker; now = model_->Current()) {
    ranker = now;
    trained = model_->stats().mark;
  }
  if (options_.rounds != nullptr) {
    RETURN_IF_ERROR(options_.rounds->Begin(
        options_.rounds_run, {tasks_[id]->task().workload_key, options_.target.ToString(), options_.facts.model, trials,
                              known_record_, ranker == nullptr ? 0 : trained}));
  }
  StartSearch(id, trials, std::move(ranker));
  return absl::OkStatus();
}

void Tuner::Impl::StartSearch(int id, int trials, std::shared_ptr<const Ranker> ranker) {
  if (searching_.joinable()) searching_.join();
  search_runs_ = true;
  std::vector<Suggestion> suggested = SuggestionsFor(id, trials);
  TaskSearch* search = tasks_[id]->BeginSearch();
  const TaskState* task = tasks_[id].get();
  searching_ = std::thread([this, id, trials, search, task, ranker, suggested = std::move(suggested)] {
    SearchDone done{id, trials, 0, {}, 0, 0};
    const double start = MonotonicSeconds();
    const int64_t before = search->stats().evaluated;
    const std::vector<Candidate> candidates = search->NextRound(ranker.get(), trials, suggested);
    done.seconds = MonotonicSeconds() - start;
    done.evaluated = search->stats().evaluated - before;
    done.round = search->rounds();
    for (const Candidate& candidate : candidates) done.proposals.push_back(MakeProposal(*task, candidate));
    events_.Push(std::move(done));
  });
}

absl::Status Tuner::Impl::Submit(std::vector<Pending> pending) {
  std::vector<MeasureRequest> requests;
  for (Pending& one : pending) {
    one.request.id = next_request_++;
    if (one.order == 0) one.order = one.proposal.order > 0 ? one.proposal.order : one.request.id;
    requests.push_back(one.request);
    pending_[one.request.id] = std::move(one);
  }
  if (requests.empty()) return absl::OkStatus();
  return measurer_->Submit(std::move(requests));
}

absl::Status Tuner::Impl::SubmitTrials(int task, std::vector<Proposal> proposals) {
  const int count = static_cast<int>(proposals.size());
  trials_pending_[task] += count;
  proposals = Replay(task, std::move(proposals));
  std::vector<Pending> pending;
  for (Proposal& proposal : proposals) {
    Pending one;
    one.task = task;
    one.request = {0,
                   tasks_[task]->workload(),
                   proposal.record.schedule,
                   options_.target.ToString(),
                   options_.measure,
                   options_.measure.race ? tasks_[task]->BestSeconds() : 0,
                   false};
    one.proposal = std::move(proposal);
    pending.push_back(std::move(one));
  }
  RETURN_IF_ERROR(Submit(std::move(pending)));
  ++stages_.rounds;
  if (listener_ != nullptr) listener_->OnRound(task, count, Report());
  if (!pending_.empty() || stored_.empty()) return absl::OkStatus();
  Conclude();  // all of it was replayed
  return Verify(task, false);
}

bool Tuner::Impl::Unverified(int id) const {
  const TaskState& task = *tasks_[id];
  const int best = task.Best(false);
  if (best < 0) return false;
  const TrialResult& result = task.results()[best];
  return result.verified != diapason::Verified::kOk && result.verify_attempts < kMaxAttempts;
}

// Has the best of a task verified, unless it is. While the run goes on that is done once a round, since a best is
// often overtaken by the next.
absl::Status Tuner::Impl::Verify(int id, bool eager) {
  if (verifying_[id] || scheduled_as_[id] < 0 || !Unverified(id)) return absl::OkStatus();
  TaskState& task = *tasks_[id];
  const int best = task.Best(false);
  const TrialResult& result = task.results()[best];
  const bool due = trials_pending_[id] == 0 ||
                   (!options_.synchronous && (since_verified_[id] >= RoundSize() || task.Best(true) < 0));
  if (!eager && !due) return absl::OkStatus();
  if (ReplayVerdict(id, best)) return Verify(id, eager);
  verifying_[id] = true;
  since_verified_[id] = 0;
  task.CountVerifyAttempt(best);
  ++stages_.verifications;
  Pending one;
  one.task = id;
  one.result = best;
  one.request = {0, task.workload(), result.schedule, options_.target.ToString(), options_.measure, 0, true};
  std::vector<Pending> pending;
  pending.push_back(std::move(one));
  return Submit(std::move(pending));
}

}  // namespace diapason
