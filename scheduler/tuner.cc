#include "scheduler/tuner.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "scheduler/event_queue.h"
#include "scheduler/tuning/background.h"
#include "scheduler/tuning/replays.h"
#include "scheduler/tuning/reporter.h"
#include "scheduler/tuning/requests.h"
#include "scheduler/tuning/results.h"
#include "scheduler/tuning/resumption.h"
#include "scheduler/tuning/round_notes.h"
#include "scheduler/tuning/run_clock.h"
#include "scheduler/tuning/tasks.h"
#include "scheduler/tuning/trial.h"
#include "scheduler/tuning/verifications.h"
#include "scheduler/tuning/warm_starts.h"

namespace diapason {
namespace {

using tuning::Event;
using tuning::kMaxAttempts;
using tuning::kTickSeconds;
using tuning::MonotonicSeconds;
using tuning::Pending;
using tuning::Proposal;
using tuning::SearchDone;

// Times at the end that what is then the best of a task is measured again.
constexpr int kMostConfirmations = 3;

bool Stopped(const std::atomic<bool>* stop) { return stop != nullptr && *stop; }

}  // namespace

// The course of a run, by the parts of scheduler/tuning: what to measure next, and who gets what came back.
class Tuner::Impl {
 public:
  Impl(TunerOptions options, tuning::Tasks tasks, Measurer* measurer, History* history, ProgressListener* listener)
      : options_(std::move(options)),
        tasks_(std::move(tasks)),
        measurer_(*measurer),
        context_{options_, tasks_, *history, listener, stages_} {}

  absl::StatusOr<TuneReport> Run(const std::atomic<bool>* stop);

 private:
  absl::Status Start();
  // Proposes and measures until the budget is used up.
  absl::Status Loop(const std::atomic<bool>* stop);
  // Why the run is to end now; empty: it goes on.
  std::string ReasonToStop(const std::atomic<bool>* stop);
  // Lets what runs end, then has the best of each task verified.
  absl::Status Drain(const std::atomic<bool>* stop);
  absl::Status VerifyBests(const std::atomic<bool>* stop);
  // Handles events while `busy`, so many seconds at most.
  template <typename Busy>
  absl::Status WaitWhile(const Busy& busy, double at_most);
  // Ends the run in any case: the first error wins.
  absl::Status Close(absl::Status status);
  void StopThreads();

  // Starts what should be going on: the defaults of all tasks at once, then one search at a time.
  absl::Status StartRounds();
  absl::Status BeginSearch(int task, int trials);
  void StartSearch(int task, int trials, std::shared_ptr<const Ranker> ranker);
  absl::Status SubmitTrials(int task, std::vector<Proposal> proposals);
  // Takes from the proposals those that the continued runs have measured.
  std::vector<Proposal> Replay(int task, std::vector<Proposal> proposals);
  // Measures what an earlier run had proposed, in its order.
  absl::Status ResumeRounds();

  absl::Status Handle(Event event);
  absl::Status HandleSearch(SearchDone done);
  absl::Status HandleOutcomes(const std::vector<MeasureOutcome>& outcomes);
  absl::Status HandleOutcome(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  absl::Status Lost(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  void Announce(int task, const TuningRecord& record, bool best) {
    if (context_.listener != nullptr) context_.listener->OnRecord(task, record, best, reporter_.Report());
  }

  const TunerOptions options_;
  const tuning::Tasks tasks_;
  Measurer& measurer_;
  StageReport stages_;
  const tuning::RunContext context_;
  // Each knows those above it alone, but for what Results announces.
  tuning::RunClock clock_{options_};
  tuning::Replays replays_{tasks_.all.size()};
  tuning::Requests requests_{measurer_, tasks_.all.size()};
  tuning::Results results_{context_,
                           [this](int task, const TuningRecord& record, bool best) { Announce(task, record, best); }};
  tuning::Verifications verifications_{context_, requests_, results_, replays_};
  tuning::WarmStarts warm_starts_{context_};
  const tuning::RoundNotes notes_{context_};
  tuning::Resumption resumption_{context_, notes_, results_, replays_, warm_starts_};
  tuning::Reporter reporter_{context_, clock_, requests_, results_, replays_};

  int64_t run_id_ = 0;
  bool trials_over_ = false;  // no trial is sent any more
  bool cancelled_ = false;    // nothing is
  int lost_in_a_row_ = 0;
  std::string stopped_;

  EventQueue<Event> events_;
  tuning::SearchThread search_{events_};
  tuning::Collector collector_{measurer_, events_};
};

absl::Status Tuner::Impl::Start() {
  clock_.Start();
  TuningRun run;
  run.command_line = options_.command_line;
  run.seed = options_.seed;
  run.host = options_.host;
  run.version = options_.version;
  ASSIGN_OR_RETURN(run_id_, context_.history.StartRun(run));
  results_.BeginRun(run_id_);
  std::vector<NetworkTask> links;
  for (const auto& task : tasks_.all)
    for (const NetworkWeight& weight : task->task().weights)
      links.push_back({weight.network, task->task().workload_key, *task->workload(), task->task().name, weight.weight});
  RETURN_IF_ERROR(context_.history.LinkNetwork(links));
  RETURN_IF_ERROR(reporter_.ReadCorrection());
  RETURN_IF_ERROR(resumption_.Run([this](int task, int trials, std::shared_ptr<const Ranker> ranker) {
    StartSearch(task, trials, std::move(ranker));
  }));
  if (context_.listener != nullptr) context_.listener->OnStart(reporter_.Report());
  RETURN_IF_ERROR(ResumeRounds());
  collector_.Start();
  return absl::OkStatus();
}

void Tuner::Impl::StopThreads() {
  collector_.Stop();
  search_.Join();
}

std::string Tuner::Impl::ReasonToStop(const std::atomic<bool>* stop) {
  if (Stopped(stop)) return "stopped by request";
  const double waiting = static_cast<double>(requests_.waiting());
  if (clock_.OutOfTime(verifications_.Reserve(clock_) + clock_.trial_seconds() * waiting)) {
    trials_over_ = true;
    return "time limit reached";
  }
  const bool patient = options_.patience <= 0 || results_.without_gain() < options_.patience;
  if (!patient && tasks_.scheduler->Value().has_value()) {
    trials_over_ = true;
    return absl::StrCat("no gain in ", options_.patience, " trials");
  }
  return "";
}

absl::Status Tuner::Impl::Loop(const std::atomic<bool>* stop) {
  while (true) {
    stopped_ = ReasonToStop(stop);
    if (!stopped_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(StartRounds());
    if (tasks_.scheduler->reason() != StopReason::kNone && !search_.runs()) {
      stopped_ = StopReasonText(tasks_.scheduler->reason());
      return absl::OkStatus();
    }
    if (requests_.empty()) clock_.Rest();
    if (clock_.Stalled())
      return absl::DeadlineExceededError(
          absl::StrFormat("no result of %d measurements has come for %.0f seconds: see to the workers and run the same "
                          "command again, what was "
                          "measured is kept",
                          requests_.size(), options_.stall_s));
    if (std::optional<Event> event = events_.Pop(kTickSeconds)) RETURN_IF_ERROR(Handle(*std::move(event)));
    reporter_.Tick();
  }
}

template <typename Busy>
absl::Status Tuner::Impl::WaitWhile(const Busy& busy, double at_most) {
  const double start = MonotonicSeconds();
  while (busy() && MonotonicSeconds() - start < at_most) {
    if (std::optional<Event> event = events_.Pop(kTickSeconds)) RETURN_IF_ERROR(Handle(*std::move(event)));
    reporter_.Tick();
  }
  return absl::OkStatus();
}

absl::Status Tuner::Impl::Drain(const std::atomic<bool>* stop) {
  const auto busy = [this] { return !requests_.empty() || search_.runs(); };
  const auto in_time = [&] { return !Stopped(stop) && !clock_.OutOfTime(verifications_.Reserve(clock_)); };
  RETURN_IF_ERROR(WaitWhile([&] { return busy() && in_time(); }, options_.stall_s));
  if (busy()) {
    trials_over_ = true;
    cancelled_ = Stopped(stop);
    measurer_.Cancel();
    RETURN_IF_ERROR(WaitWhile(busy, options_.stop_grace_s));
    for (int task : requests_.GiveUpVerifications()) verifications_.GiveUp(task);
  }
  results_.Conclude();
  trials_over_ = true;
  return VerifyBests(stop);
}

absl::Status Tuner::Impl::VerifyBests(const std::atomic<bool>* stop) {
  for (int confirmed = 0; !Stopped(stop);) {
    for (int task : tasks_.selected) RETURN_IF_ERROR(verifications_.Verify(task, true));
    if (!verifications_.busy()) {
      // All are verified. What is measured again may fall behind another one.
      if (confirmed++ == kMostConfirmations || (confirmed > 1 && clock_.OutOfTime(0))) break;
      ASSIGN_OR_RETURN(const bool confirming, verifications_.ConfirmBests(clock_));
      if (!confirming) break;
    }
    const int64_t sent = requests_.next_number();
    const size_t left = requests_.size();
    const auto waits = [&] {
      return verifications_.busy() && requests_.next_number() == sent && requests_.size() == left;
    };
    RETURN_IF_ERROR(WaitWhile([&] { return waits() && !Stopped(stop); }, options_.stall_s));
    if (waits()) break;  // stopped, or no answer comes
  }
  return absl::OkStatus();
}

absl::Status Tuner::Impl::Close(absl::Status status) {
  if (!status.ok()) {
    stopped_ = std::string(status.message());
    measurer_.Cancel();
  }
  StopThreads();
  // What came in between is measured too.
  trials_over_ = cancelled_ = true;
  while (std::optional<Event> event = events_.Pop(0)) status.Update(Handle(*std::move(event)));
  status.Update(results_.Store());
  results_.Conclude();
  if (run_id_ > 0) status.Update(context_.history.EndRun(run_id_));
  if (resumption_.keeps_model()) {
    const absl::Status saved = tasks_.model->Save(options_.model_path);
    if (!saved.ok() && context_.listener != nullptr) context_.listener->OnWarning(std::string(saved.message()));
  }
  return status;
}

absl::StatusOr<TuneReport> Tuner::Impl::Run(const std::atomic<bool>* stop) {
  absl::Status status = Start();
  if (status.ok()) status = Loop(stop);
  if (status.ok()) status = Drain(stop);
  status = Close(std::move(status));
  if (status.ok() && !Stopped(stop)) status = notes_.Forget();
  TuneReport report = reporter_.Report();
  report.seconds_left.reset();
  report.stopped = stopped_;
  if (context_.listener != nullptr) context_.listener->OnFinish(report);
  RETURN_IF_ERROR(status);
  return report;
}

// ---- what to measure

absl::Status Tuner::Impl::StartRounds() {
  const int round = tasks_.round_size, ahead = 2 * measurer_.slots();
  while (!search_.runs()) {
    if (options_.synchronous) {
      if (!requests_.empty()) return absl::OkStatus();
      tasks_.model->Train();
      tasks_.model->Wait();
    } else if (tasks_.scheduler->in_flight() > std::max(ahead, round)) {
      return absl::OkStatus();
    }
    // A task's next round is searched when its last one is nearly measured.
    const auto next = tasks_.scheduler->Next(round + (options_.synchronous ? 0 : ahead));
    if (!next) return absl::OkStatus();
    const int task = tasks_.selected[next->task];
    if (tasks_.at(task).results().empty() && next->trials == 1) {
      std::vector<Proposal> proposals;
      proposals.push_back(tuning::MakeProposal(tasks_.at(task), tasks_.at(task).default_candidate()));
      RETURN_IF_ERROR(notes_.NoteDefault(task, proposals));
      RETURN_IF_ERROR(SubmitTrials(task, std::move(proposals)));
    } else {
      RETURN_IF_ERROR(BeginSearch(task, next->trials));
    }
  }
  return absl::OkStatus();
}

absl::Status Tuner::Impl::BeginSearch(int id, int trials) {
  std::shared_ptr<const Ranker> ranker = tasks_.model->Current();
  int64_t trained = tasks_.model->stats().mark;
  // A training may end in between.
  for (auto now = tasks_.model->Current(); now != ranker; now = tasks_.model->Current()) {
    ranker = now;
    trained = tasks_.model->stats().mark;
  }
  RETURN_IF_ERROR(notes_.NoteBegun(id, trials, results_.known_record(), ranker == nullptr ? 0 : trained));
  StartSearch(id, trials, std::move(ranker));
  return absl::OkStatus();
}

void Tuner::Impl::StartSearch(int id, int trials, std::shared_ptr<const Ranker> ranker) {
  search_.Join();
  search_.Start(tasks_.at(id), trials, std::move(ranker), warm_starts_.For(id, trials));
}

absl::Status Tuner::Impl::SubmitTrials(int task, std::vector<Proposal> proposals) {
  const int count = static_cast<int>(proposals.size());
  requests_.AddWaiting(task, count);
  proposals = Replay(task, std::move(proposals));
  std::vector<Pending> pending;
  for (Proposal& proposal : proposals) {
    Pending one;
    one.task = task;
    one.request = {0,
                   tasks_.at(task).workload(),
                   proposal.record.schedule,
                   options_.target.ToString(),
                   options_.measure,
                   options_.measure.race ? tasks_.at(task).results().BestSeconds() : 0,
                   false};
    one.proposal = std::move(proposal);
    pending.push_back(std::move(one));
  }
  RETURN_IF_ERROR(requests_.Submit(std::move(pending)));
  ++stages_.rounds;
  if (context_.listener != nullptr) context_.listener->OnRound(task, count, reporter_.Report());
  if (!requests_.empty() || !results_.to_conclude()) return absl::OkStatus();
  results_.Conclude();  // all of it was replayed
  return verifications_.Verify(task, false);
}

std::vector<Proposal> Tuner::Impl::Replay(int task, std::vector<Proposal> proposals) {
  if (replays_.empty()) return proposals;
  std::vector<Proposal> unknown;
  // Numbered as those that are measured, so that the order is that of the proposals.
  for (Proposal& proposal : proposals) {
    proposal.order = requests_.TakeNumber();
    if (std::optional<TuningRecord> known = replays_.Take(task, proposal.record.configuration_hash)) {
      requests_.AddWaiting(task, -1);
      results_.AddReplayed(task, *std::move(known), proposal);
    } else {
      unknown.push_back(std::move(proposal));
    }
  }
  return unknown;
}

absl::Status Tuner::Impl::ResumeRounds() {
  std::vector<std::pair<int, Proposal>> under_way = resumption_.TakeUnderWay();
  for (size_t i = 0; i < under_way.size();) {
    const int task = under_way[i].first;
    std::vector<Proposal> proposals;
    for (; i < under_way.size() && under_way[i].first == task; ++i) proposals.push_back(std::move(under_way[i].second));
    const int64_t taken = tasks_.scheduler->Adopt(tasks_.scheduled_as[task], static_cast<int64_t>(proposals.size()));
    proposals.resize(static_cast<size_t>(taken));
    if (!proposals.empty()) RETURN_IF_ERROR(SubmitTrials(task, std::move(proposals)));
  }
  tasks_.scheduler->Settle();
  return absl::OkStatus();
}

// ---- what came back

absl::Status Tuner::Impl::Handle(Event event) {
  if (auto* status = std::get_if<absl::Status>(&event)) return *status;
  if (auto* done = std::get_if<SearchDone>(&event)) return HandleSearch(std::move(*done));
  return HandleOutcomes(std::get<std::vector<MeasureOutcome>>(std::move(event)));
}

absl::Status Tuner::Impl::HandleSearch(SearchDone done) {
  search_.End(tasks_.at(done.task));
  stages_.search_s += done.seconds;
  stages_.candidates += done.evaluated;
  const int found = trials_over_ ? 0 : static_cast<int>(done.proposals.size());
  tasks_.scheduler->Shrink(tasks_.scheduled_as[done.task], done.asked, found);
  // Otherwise the run that goes on with this one begins this search again.
  if (!trials_over_) RETURN_IF_ERROR(notes_.NoteRound(done));
  if (found == 0) return absl::OkStatus();
  return SubmitTrials(done.task, std::move(done.proposals));
}

absl::Status Tuner::Impl::HandleOutcomes(const std::vector<MeasureOutcome>& outcomes) {
  const double each = clock_.TakeOutcomes(outcomes.size());
  std::vector<Pending> again;
  std::set<int> touched;
  for (const MeasureOutcome& outcome : outcomes) {
    std::optional<Pending> pending = requests_.Take(outcome.id);
    if (!pending.has_value()) continue;  // answered twice
    touched.insert(pending->task);
    if (!pending->confirms) pending->result < 0 ? clock_.CountTrial(each) : clock_.CountVerification(each);
    RETURN_IF_ERROR(HandleOutcome(*std::move(pending), outcome, &again));
  }
  RETURN_IF_ERROR(results_.Store());
  if (!cancelled_) RETURN_IF_ERROR(requests_.Submit(std::move(again)));
  if (!options_.synchronous || requests_.empty()) results_.Conclude();
  if (!options_.synchronous) tasks_.model->Train();
  if (!cancelled_) {
    for (int task : touched) RETURN_IF_ERROR(verifications_.Verify(task, false));
  }
  return absl::OkStatus();
}

absl::Status Tuner::Impl::HandleOutcome(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again) {
  if (!SpeaksOfCandidate(outcome.outcome)) return Lost(std::move(pending), outcome, again);
  lost_in_a_row_ = 0;
  if (pending.result < 0) {
    requests_.AddWaiting(pending.task, -1);
    verifications_.CountTrial(pending.task);
    results_.Add(std::move(pending), outcome);
    return absl::OkStatus();
  }
  if (pending.confirms) return verifications_.Confirmed(pending, outcome);
  // What it verifies may be among the trials of this very batch.
  RETURN_IF_ERROR(results_.Store());
  results_.Conclude();
  return verifications_.Verified(pending, outcome);
}

// A fault of the infrastructure says nothing of the candidate: it is sent again a few times, then set free for a later
// round. When nothing else comes back, the run cannot go on.
absl::Status Tuner::Impl::Lost(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again) {
  const auto& error = std::get<MeasureError>(outcome.outcome);
  const int task = pending.task;
  if (!trials_over_) {
    results_.CountError(error.kind);
    if (++lost_in_a_row_ > std::max(4 * measurer_.slots(), 8 * kMaxAttempts)) {
      return absl::UnavailableError(
          absl::StrCat("the last ", lost_in_a_row_, " measurements were lost to faults of the workers (", error.text,
                       "): see to the workers and run the same command again, what was measured is kept"));
    }
  }
  if (!cancelled_) {
    const bool trial = pending.result < 0;
    if (pending.attempts < kMaxAttempts && !(trial && trials_over_)) {
      ++pending.attempts;
      again->push_back(std::move(pending));
      return absl::OkStatus();
    }
  }
  if (pending.confirms) return verifications_.Confirmed(pending, outcome);
  if (pending.result >= 0) {
    verifications_.GiveUp(task);
    return absl::OkStatus();
  }
  requests_.AddWaiting(task, -1);
  tasks_.scheduler->Lost(tasks_.scheduled_as[task]);
  tasks_.at(task).search().Release(pending.proposal.record.configuration_hash);
  return absl::OkStatus();
}

// ---- the public face

Tuner::Tuner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tuner::~Tuner() = default;

absl::StatusOr<std::unique_ptr<Tuner>> Tuner::Create(std::vector<TuningTask> tasks, TunerOptions options,
                                                     Measurer* measurer, History* history, ProgressListener* listener) {
  ASSIGN_OR_RETURN(tuning::Tasks made, tuning::MakeTasks(std::move(tasks), options));
  return std::unique_ptr<Tuner>(
      new Tuner(std::make_unique<Impl>(std::move(options), std::move(made), measurer, history, listener)));
}

absl::StatusOr<TuneReport> Tuner::Run(const std::atomic<bool>* stop) { return impl_->Run(stop); }

}  // namespace diapason
