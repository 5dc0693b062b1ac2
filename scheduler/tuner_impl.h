// The state of a tuning run, and what is done with it: tuner.cc (start and end), tuner_rounds.cc (what to measure
// next), tuner_results.cc (what came back), tuner_warm_start.cc, tuner_replay.cc and tuner_resume.cc (after a run that
// was cut off), tuner_report.cc. For these files only.
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "db/rounds.h"
#include "scheduler/event_queue.h"
#include "scheduler/task_scheduler.h"
#include "scheduler/task_state.h"
#include "scheduler/tuner.h"

namespace diapason {

// Times that a candidate is sent again after a fault of the infrastructure.
inline constexpr int kMaxAttempts = 3;
// Times at the end that what is then the best of a task is measured again.
inline constexpr int kMostConfirmations = 3;
inline constexpr double kTickSeconds = 0.1;

// A candidate ready to be measured.
struct Proposal {
  TuningRecord record;  // all but its outcome
  int space = 0;
  int64_t order = 0;  // among all proposals, where it matters; 0: that of the requests
};

Proposal MakeProposal(const TaskState& task, const Candidate& candidate);

struct SearchDone {
  int task = 0, asked = 0;
  int64_t round = 0;  // of the task's search
  std::vector<Proposal> proposals;
  double seconds = 0;
  int64_t evaluated = 0;
};
using Event = std::variant<SearchDone, std::vector<MeasureOutcome>, absl::Status>;

// A request that was submitted.
struct Pending {
  int task = 0;
  MeasureRequest request;
  Proposal proposal;  // of a trial
  int result = -1;    // of a verification or confirmation: index in the task's results
  bool confirms = false;
  int attempts = 1;
  int64_t order = 0;  // of the proposal: the number of its first request
};

// Seconds of a clock that only goes forwards.
double MonotonicSeconds();

class Tuner::Impl {
 public:
  Impl(TunerOptions options, Measurer* measurer, History* history, ProgressListener* listener)
      : options_(std::move(options)), measurer_(measurer), history_(history), listener_(listener) {
    if (!options_.clock) options_.clock = MonotonicSeconds;
  }
  ~Impl() { StopThreads(); }

  absl::Status Prepare(std::vector<TuningTask> tasks);
  absl::StatusOr<TuneReport> Run(const std::atomic<bool>* stop);

 private:
  int RoundSize() const;
  std::vector<NetworkChoice> ScheduledChoices();
  absl::Status Start();
  absl::Status Loop(const std::atomic<bool>* stop);
  absl::Status Drain(const std::atomic<bool>* stop);
  absl::Status Close(absl::Status status);

  // Seconds that it will take to verify the bests that are not verified yet, and to measure bests again.
  double VerificationReserve() const;
  // Whether all but the last `reserve` seconds of the time are over.
  bool OutOfTime(double reserve) const;
  void GiveUpVerifications();
  // How far the sum of the tasks' times was off when the network was measured from end to end; 1: it was not.
  absl::StatusOr<double> ReadCorrection();
  bool OutOfPatience() const;
  bool Stopped(const std::atomic<bool>* stop) const { return stop != nullptr && *stop; }
  absl::Status StartRounds();
  absl::Status BeginSearch(int task, int trials);
  void StartSearch(int task, int trials, std::shared_ptr<const Ranker> ranker);
  // Reads what the history has of workloads that are no task of this run. tuner_warm_start.cc
  absl::Status LoadTunedWorkloads(int64_t before);
  // What the next round of a task begins with.
  std::vector<Suggestion> SuggestionsFor(int task, int trials) const;
  absl::Status Submit(std::vector<Pending> pending);
  absl::Status SubmitTrials(int task, std::vector<Proposal> proposals);
  // Whether the best of a task waits for its verification.
  bool Unverified(int task) const;
  absl::Status Verify(int task, bool eager);
  // The verified best of a task if it wants further samples; -1: none does.
  int Unconfirmed(int task) const;
  // Has the bests measured again that want it; false when there is none. tuner_results.cc
  absl::StatusOr<bool> ConfirmBests();
  absl::Status Confirmed(const Pending& pending, const MeasureOutcome& outcome);

  absl::Status Handle(Event event);
  absl::Status HandleSearch(SearchDone done);
  absl::Status HandleOutcomes(std::vector<MeasureOutcome> outcomes);
  absl::Status TrialEnded(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  absl::Status Verified(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  void Judge(int task, int result, const Verdict& verdict);
  absl::Status Lost(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  // Writes what has ended into the history.
  absl::Status Store();
  // Learns from what is stored.
  void Conclude();

  // Takes from the proposals those that the continued runs have measured. tuner_replay.cc
  std::vector<Proposal> Replay(int task, std::vector<Proposal> proposals);
  // Gives the verdict that the continued runs have of a result; false when they have none.
  bool ReplayVerdict(int task, int result);
  // When the continued runs began: Unix nanoseconds.
  absl::StatusOr<int64_t> ContinuedFrom();

  // Counts what the history holds and learns from it; begins the search again that was under way when an earlier run
  // was cut off, with what it knew then. tuner_resume.cc
  absl::Status Resume();
  struct Restored;
  struct UnderWay;
  absl::StatusOr<std::vector<Restored>> LoadRecords(int64_t continued_from);
  // Of the records, what is to be restored up to an id.
  std::vector<Sample> RestoreUntil(int64_t id, const std::vector<Restored>& records, size_t* next);
  absl::StatusOr<UnderWay> LoadRounds(const std::vector<Restored>& records);
  void LoadModel();
  std::vector<ProposedTrial> Noted(int task, int64_t round, const std::vector<Proposal>& proposals) const;
  // Keeps what is about to be measured, if a file for it was given.
  absl::Status NoteDefault(int task, const std::vector<Proposal>& proposals);
  absl::Status NoteRound(const SearchDone& done);
  // Measures what an earlier run had proposed. REQUIRES: Resume was called.
  absl::Status ResumeRounds();
  // The run has come to its end: what it did not measure is of no interest.
  absl::Status ForgetRounds();

  void Collect();
  void StopThreads();
  TuneReport Report() const;
  TaskReport ReportOf(const TaskState& task) const;
  // By which the analytic estimates of the fallback schedules that are timed were off, together; 1: none is.
  double AnalyticError() const;
  void Tick();
  void Warn(const std::string& text) {
    if (listener_ != nullptr) listener_->OnWarning(text);
  }

  // A measured trial on its way into the history.
  struct Finished {
    int task;
    TuningRecord record;
    int space;
    int64_t order;
    bool replayed = false;  // taken from the history
  };

  TunerOptions options_;
  Measurer* const measurer_;
  History* const history_;
  ProgressListener* const listener_;

  std::vector<std::unique_ptr<TaskState>> tasks_;
  std::vector<int> selected_;      // tasks that are tuned, in order
  std::vector<int> scheduled_as_;  // index of a task in the scheduler; -1: not tuned
  std::vector<bool> usual_;        // by task: it has a weight, whatever way is best
  std::vector<int> choices_;       // of options_.choices, those that the scheduler knows
  std::unique_ptr<TaskScheduler> scheduler_;
  std::unique_ptr<XgbCostModel> model_;
  std::vector<TunedWorkload> tuned_before_;              // no tasks of this run
  int64_t began_ = std::numeric_limits<int64_t>::max();  // the run that goes on: Unix nanoseconds
  int64_t known_record_ = 0;                             // the last one that was concluded
  std::vector<std::pair<int, Proposal>> under_way_;  // with its task: what an earlier run had proposed, in its order
  bool save_model_ = false;

  int64_t run_id_ = 0, next_request_ = 1;
  double started_ = 0, last_outcome_ = 0, last_tick_ = 0;
  std::map<int64_t, Pending> pending_;                // by request
  std::vector<int> trials_pending_, since_verified_;  // of each task
  std::vector<bool> verifying_;                       // or being confirmed
  double correction_ = 1;  // of the sum of the tasks' times, by what the network took from end to end
  std::vector<int64_t> next_trial_;
  std::vector<Finished> finished_;                           // not stored yet
  std::vector<Finished> stored_;                             // not concluded yet
  std::map<std::pair<int, uint64_t>, TuningRecord> replay_;  // by task and configuration: what is not proposed yet
  std::vector<int64_t> to_replay_;                           // of each task: how many these are
  std::map<int64_t, TuningRecord> replayed_;                 // by record: of the results that were replayed
  bool trials_over_ = false;                                 // no trial is sent any more
  // What an outcome takes when the workers are busy, by the clock between it and the one before.
  struct Pace {
    double seconds = 0;
    int64_t outcomes = 0;
    double mean() const { return outcomes > 0 ? seconds / static_cast<double>(outcomes) : 0; }
  };
  Pace trial_pace_, verification_pace_;
  bool cancelled_ = false;  // nothing is
  int lost_in_a_row_ = 0;
  int64_t measured_ = 0, gain_at_ = 0;  // gain_at_: measured_ at the last new best
  int64_t replays_ = 0;                 // of these, those that were replayed
  StageReport stages_;
  std::map<std::string, int64_t> errors_;
  std::string stopped_;

  EventQueue<Event> events_;
  std::thread searching_, collecting_;
  bool search_runs_ = false;
  std::atomic<bool> end_collecting_{false};
};

}  // namespace diapason
