#include "scheduler/tuner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "compiler/tensor/check.h"
#include "scheduler/event_queue.h"
#include "scheduler/task_scheduler.h"
#include "scheduler/task_state.h"

namespace diapason {
namespace {

// Times that a candidate is sent again after a fault of the infrastructure.
constexpr int kMaxAttempts = 3;
// The shortest rounds that a small budget is cut into: fewer candidates are not worth a search.
constexpr int kMinRound = 8;
constexpr int kRoundsPerTask = 4;
// Trials a second to plan with while a run is limited by time: what a host of two cores and a GPU at least manage.
constexpr double kPlannedRate = 3, kPlannedGpuRate = 12;
constexpr double kTickSeconds = 0.1;

// A candidate ready to be measured.
struct Proposal {
  TuningRecord record;  // all but its outcome
  int space = 0;
};

struct SearchDone {
  int task = 0, asked = 0;
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
  int result = -1;    // of a verification: index in the task's results
  int attempts = 1;
};

double SystemClock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Proposal MakeProposal(const TaskState& task, const Candidate& candidate) {
  const Schedule schedule = task.space().space(candidate.space).Instantiate(candidate.decisions);
  return {task.RecordOf(candidate, schedule, SerializeSchedule(schedule)), candidate.space};
}

}  // namespace

class Tuner::Impl {
 public:
  Impl(TunerOptions options, Measurer* measurer, History* history, ProgressListener* listener)
      : options_(std::move(options)), measurer_(measurer), history_(history), listener_(listener) {
    if (!options_.clock) options_.clock = SystemClock;
  }
  ~Impl() { StopThreads(); }

  absl::Status Prepare(std::vector<TuningTask> tasks);
  absl::StatusOr<TuneReport> Run(const std::atomic<bool>* stop);

 private:
  int RoundSize() const;
  absl::Status Resume();
  absl::Status Start();
  absl::Status Loop(const std::atomic<bool>* stop);
  absl::Status Drain(const std::atomic<bool>* stop);
  absl::Status Close(absl::Status status);

  bool OutOfTime() const { return options_.seconds > 0 && options_.clock() - started_ >= options_.seconds; }
  bool Stopped(const std::atomic<bool>* stop) const { return stop != nullptr && *stop; }
  absl::Status StartRounds();
  void StartSearch(int task, int trials);
  absl::Status Submit(std::vector<Pending> pending);
  absl::Status SubmitTrials(int task, std::vector<Proposal> proposals);
  absl::Status Verify(int task, bool eager);

  absl::Status Handle(Event event);
  absl::Status HandleSearch(SearchDone done);
  absl::Status HandleOutcomes(std::vector<MeasureOutcome> outcomes);
  absl::Status TrialEnded(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  absl::Status Verified(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  absl::Status Lost(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again);
  absl::Status Store();

  void Collect();
  void StopThreads();
  TuneReport Report() const;
  TaskReport ReportOf(const TaskState& task) const;
  void Tick();
  void Warn(const std::string& text) {
    if (listener_ != nullptr) listener_->OnWarning(text);
  }

  // A measured trial on its way into the history.
  struct Finished {
    int task;
    TuningRecord record;
    int space;
  };

  TunerOptions options_;
  Measurer* const measurer_;
  History* const history_;
  ProgressListener* const listener_;

  std::vector<std::unique_ptr<TaskState>> tasks_;
  std::vector<int> selected_;         // tasks that are tuned, in order
  std::vector<int> scheduled_as_;     // index of a task in the scheduler; -1: not tuned
  std::unique_ptr<TaskScheduler> scheduler_;
  std::unique_ptr<XgbCostModel> model_;
  bool save_model_ = false;

  int64_t run_id_ = 0, next_request_ = 1;
  double started_ = 0, last_outcome_ = 0, last_tick_ = 0;
  std::map<int64_t, Pending> pending_;  // by request
  std::vector<int> trials_pending_, since_verified_;  // of each task
  std::vector<bool> verifying_;
  std::vector<int64_t> next_trial_;
  std::vector<Finished> finished_;
  bool trials_over_ = false;  // no trial is sent any more
  bool cancelled_ = false;    // nothing is
  int lost_in_a_row_ = 0;
  int64_t measured_ = 0;
  StageReport stages_;
  std::map<std::string, int64_t> errors_;
  std::string stopped_;

  EventQueue<Event> events_;
  std::thread searching_, collecting_;
  bool search_runs_ = false;
  std::atomic<bool> end_collecting_{false};
};

int Tuner::Impl::RoundSize() const {
  double trials = static_cast<double>(options_.trials);
  if (options_.seconds > 0)
    trials = std::min(trials, options_.seconds * (options_.target.kind == TargetKind::kCuda ? kPlannedGpuRate : kPlannedRate));
  const auto fair = static_cast<int>(std::min(1e6, trials / (kRoundsPerTask * static_cast<double>(selected_.size()))));
  return std::min(options_.trials_per_round, std::max(kMinRound, fair));
}

absl::Status Tuner::Impl::Prepare(std::vector<TuningTask> tasks) {
  if (options_.trials < 1)
    return absl::InvalidArgumentError(absl::StrCat("the number of trials is ", options_.trials, ": give at least 1"));
  if (options_.trials_per_round < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("the number of trials per round is ", options_.trials_per_round, ": give at least 1"));
  if (options_.seconds < 0)
    return absl::InvalidArgumentError(absl::StrCat("the time limit is ", options_.seconds, " seconds: give 0 for none"));
  if (tasks.empty()) return absl::InvalidArgumentError("there is no task to tune: the network has no operator that runs");

  scheduled_as_.assign(tasks.size(), -1);
  std::set<int> only(options_.only.begin(), options_.only.end());
  for (int id : only)
    if (id < 0 || id >= static_cast<int>(tasks.size()))
      return absl::InvalidArgumentError(absl::StrCat("there is no task ", id, ": choose from 0 to ", tasks.size() - 1));
  for (int id = 0; id < static_cast<int>(tasks.size()); ++id)
    if (only.empty() || only.count(id) > 0) selected_.push_back(id);

  const int round_size = RoundSize();
  options_.evolution.population = std::min(options_.evolution.population, std::max(1024, 64 * round_size));
  for (int id = 0; id < static_cast<int>(tasks.size()); ++id) {
    ASSIGN_OR_RETURN(auto state, TaskState::Create(id, std::move(tasks[id]), options_));
    tasks_.push_back(std::move(state));
  }
  std::vector<ScheduledTask> scheduled;
  std::vector<std::vector<NetworkWeight>> weights;
  for (int id : selected_) {
    scheduled_as_[id] = static_cast<int>(scheduled.size());
    scheduled.push_back({tasks_[id]->flops(), KindOf(tasks_[id]->task().dag)});
    weights.push_back(tasks_[id]->task().weights);
  }
  ASSIGN_OR_RETURN(Objective objective, Objective::Parse(options_.objective, weights));
  TaskSchedulerOptions scheduling;
  scheduling.trials = options_.trials;
  scheduling.round_size = round_size;
  scheduling.seed = options_.seed;
  scheduling.early_stop = options_.early_stop;
  scheduler_ = std::make_unique<TaskScheduler>(std::move(scheduled), std::move(objective), scheduling);

  XgbOptions model;
  model.num_features = kNumFeatures;
  model.feature_version = kFeatureVersion;
  model.target_kind = options_.target.kind == TargetKind::kCpu      ? "cpu"
                      : options_.target.kind == TargetKind::kOpenCl ? "opencl"
                                                                    : "cuda";
  model.label = options_.label;
  model.seed = options_.seed;
  model_ = std::make_unique<XgbCostModel>(std::move(model));

  trials_pending_.resize(tasks_.size());
  since_verified_.resize(tasks_.size());
  verifying_.resize(tasks_.size());
  next_trial_.resize(tasks_.size());
  return absl::OkStatus();
}

// Counts what the history holds and learns from it.
absl::Status Tuner::Impl::Resume() {
  std::vector<Sample> samples;
  for (auto& task : tasks_) {
    const int scheduled = scheduled_as_[task->id()];
    ASSIGN_OR_RETURN(const std::vector<TuningRecord> records,
                     history_->ForWorkload(task->task().workload_key, options_.facts.model, options_.target.ToString()));
    for (const TuningRecord& record : records) {
      if (!task->Restore(record, &samples)) continue;
      ++next_trial_[task->id()];
      if (scheduled >= 0) scheduler_->Restore(scheduled, task->BestSeconds());
    }
    // A default that was lost is proposed by the search like any other.
    if (!task->results().empty() && task->default_seconds() == 0) task->Release(task->default_candidate().hash);
  }
  model_->AddSamples(std::move(samples));
  if (!options_.model_path.empty()) {
    const absl::Status loaded = model_->Load(options_.model_path);
    save_model_ = loaded.ok() || absl::IsNotFound(loaded);
    if (!save_model_) Warn(std::string(loaded.message()));
  }
  // Nothing is measured meanwhile: the first round may as well know what the history knows.
  model_->Train();
  model_->Wait();
  return absl::OkStatus();
}

absl::Status Tuner::Impl::Start() {
  started_ = last_outcome_ = options_.clock();
  TuningRun run;
  run.command_line = options_.command_line;
  run.seed = options_.seed;
  run.host = options_.host;
  run.version = options_.version;
  ASSIGN_OR_RETURN(run_id_, history_->StartRun(run));
  std::vector<NetworkTask> links;
  for (const auto& task : tasks_)
    for (const NetworkWeight& weight : task->task().weights)
      links.push_back({weight.network, task->task().workload_key, *task->workload(), task->task().name, weight.weight});
  RETURN_IF_ERROR(history_->LinkNetwork(links));
  RETURN_IF_ERROR(Resume());
  if (listener_ != nullptr) listener_->OnStart(Report());
  collecting_ = std::thread([this] { Collect(); });
  return absl::OkStatus();
}

void Tuner::Impl::Collect() {
  while (!end_collecting_) {
    auto outcomes = measurer_->Next(kTickSeconds);
    if (!outcomes.ok()) {
      events_.Push(outcomes.status());
      return;
    }
    if (!outcomes->empty()) events_.Push(*std::move(outcomes));
  }
}

void Tuner::Impl::StopThreads() {
  end_collecting_ = true;
  if (collecting_.joinable()) collecting_.join();
  if (searching_.joinable()) searching_.join();
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
      RETURN_IF_ERROR(SubmitTrials(task, std::move(proposals)));
    } else {
      StartSearch(task, next->trials);
    }
  }
  return absl::OkStatus();
}

void Tuner::Impl::StartSearch(int id, int trials) {
  if (searching_.joinable()) searching_.join();
  search_runs_ = true;
  TaskSearch* search = tasks_[id]->BeginSearch();
  const TaskState* task = tasks_[id].get();
  std::shared_ptr<const Ranker> ranker = model_->Current();
  searching_ = std::thread([this, id, trials, search, task, ranker] {
    SearchDone done{id, trials, {}, 0, 0};
    const double start = SystemClock();
    const int64_t before = search->stats().evaluated;
    const std::vector<Candidate> candidates = search->NextRound(ranker.get(), trials);
    done.seconds = SystemClock() - start;
    done.evaluated = search->stats().evaluated - before;
    for (const Candidate& candidate : candidates) done.proposals.push_back(MakeProposal(*task, candidate));
    events_.Push(std::move(done));
  });
}

absl::Status Tuner::Impl::Submit(std::vector<Pending> pending) {
  std::vector<MeasureRequest> requests;
  for (Pending& one : pending) {
    one.request.id = next_request_++;
    requests.push_back(one.request);
    pending_[one.request.id] = std::move(one);
  }
  if (requests.empty()) return absl::OkStatus();
  return measurer_->Submit(std::move(requests));
}

absl::Status Tuner::Impl::SubmitTrials(int task, std::vector<Proposal> proposals) {
  std::vector<Pending> pending;
  for (Proposal& proposal : proposals) {
    Pending one;
    one.task = task;
    one.request = {0, tasks_[task]->workload(), proposal.record.schedule, options_.target.ToString(), options_.measure,
                   options_.measure.race ? tasks_[task]->BestSeconds() : 0, false};
    one.proposal = std::move(proposal);
    pending.push_back(std::move(one));
  }
  const int count = static_cast<int>(pending.size());
  trials_pending_[task] += count;
  RETURN_IF_ERROR(Submit(std::move(pending)));
  ++stages_.rounds;
  if (listener_ != nullptr) listener_->OnRound(task, count, Report());
  return absl::OkStatus();
}

// Has the best of a task verified, unless it is. While the run goes on that is done once a round, since a best is
// often overtaken by the next.
absl::Status Tuner::Impl::Verify(int id, bool eager) {
  TaskState& task = *tasks_[id];
  if (verifying_[id] || scheduled_as_[id] < 0) return absl::OkStatus();
  const int best = task.Best(false);
  if (best < 0) return absl::OkStatus();
  const TrialResult& result = task.results()[best];
  if (result.verified == diapason::Verified::kOk || result.verify_attempts >= kMaxAttempts) return absl::OkStatus();
  const bool due = trials_pending_[id] == 0 ||
                   (!options_.synchronous && (since_verified_[id] >= RoundSize() || task.Best(true) < 0));
  if (!eager && !due) return absl::OkStatus();
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

absl::Status Tuner::Impl::Handle(Event event) {
  if (auto* status = std::get_if<absl::Status>(&event)) return *status;
  if (auto* done = std::get_if<SearchDone>(&event)) return HandleSearch(std::move(*done));
  return HandleOutcomes(std::get<std::vector<MeasureOutcome>>(std::move(event)));
}

absl::Status Tuner::Impl::HandleSearch(SearchDone done) {
  search_runs_ = false;
  tasks_[done.task]->EndSearch();
  stages_.search_s += done.seconds;
  stages_.candidates += done.evaluated;
  const int found = trials_over_ ? 0 : static_cast<int>(done.proposals.size());
  scheduler_->Shrink(scheduled_as_[done.task], done.asked, found);
  if (found == 0) return absl::OkStatus();
  return SubmitTrials(done.task, std::move(done.proposals));
}

absl::Status Tuner::Impl::HandleOutcomes(std::vector<MeasureOutcome> outcomes) {
  last_outcome_ = options_.clock();
  std::vector<Pending> again;
  std::set<int> touched;
  for (const MeasureOutcome& outcome : outcomes) {
    const auto found = pending_.find(outcome.id);
    if (found == pending_.end()) continue;  // answered twice
    Pending pending = std::move(found->second);
    pending_.erase(found);
    touched.insert(pending.task);
    const bool trial = pending.result < 0;
    if (!SpeaksOfCandidate(outcome.outcome)) {
      RETURN_IF_ERROR(Lost(std::move(pending), outcome, &again));
    } else if (trial) {
      RETURN_IF_ERROR(TrialEnded(std::move(pending), outcome, &again));
    } else {
      // What it verifies may be among the trials of this very batch.
      RETURN_IF_ERROR(Store());
      RETURN_IF_ERROR(Verified(std::move(pending), outcome, &again));
    }
  }
  RETURN_IF_ERROR(Store());
  if (!options_.synchronous) model_->Train();
  if (!cancelled_) {
    RETURN_IF_ERROR(Submit(std::move(again)));
    for (int task : touched) RETURN_IF_ERROR(Verify(task, false));
  }
  return absl::OkStatus();
}

absl::Status Tuner::Impl::TrialEnded(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again) {
  TuningRecord record = std::move(pending.proposal.record);
  record.run_id = run_id_;
  record.target = options_.target.ToString();
  record.device_model = outcome.device_model.empty() ? options_.facts.model : outcome.device_model;
  record.device_uuid = outcome.device_model.empty() ? options_.facts.uuid : outcome.device_uuid;
  record.driver = outcome.driver.empty() ? options_.facts.driver : outcome.driver;
  record.compiler = outcome.compiler;
  record.clocks = outcome.clocks;
  record.outcome = outcome.outcome;
  record.seed = options_.seed;
  record.trial = next_trial_[pending.task]++;
  const Timing* timing = record.timing();
  const bool broken = timing != nullptr && (timing->samples.empty() || !(MedianSeconds(*timing) > 0) ||
                                            !std::isfinite(MedianSeconds(*timing)));
  if (broken) record.outcome = MeasureError{ErrorKind::kUnknown, MeasureStage::kRun, "the measurement gave no time above 0"};
  if (timing != nullptr && !broken) {
    stages_.build_s += timing->build_seconds;
    stages_.run_s += timing->run_seconds;
  }
  lost_in_a_row_ = 0;
  --trials_pending_[pending.task];
  ++since_verified_[pending.task];
  finished_.push_back({pending.task, std::move(record), pending.proposal.space});
  return absl::OkStatus();
}

// Everything measured goes into the history before anything is told or concluded of it.
absl::Status Tuner::Impl::Store() {
  if (finished_.empty()) return absl::OkStatus();
  std::vector<TuningRecord> records;
  for (const Finished& finished : finished_) records.push_back(finished.record);
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, history_->Append(records));
  std::vector<Sample> samples;
  std::vector<Finished> stored = std::move(finished_);
  finished_.clear();
  for (size_t i = 0; i < stored.size(); ++i) {
    TuningRecord& record = stored[i].record;
    record.id = ids[i];
    TaskState& task = *tasks_[stored[i].task];
    TrialResult result;
    result.record = record.id;
    result.hash = record.decision_hash;
    result.space = stored[i].space;
    result.decisions = record.decisions;
    result.schedule = record.schedule;
    result.sketch = record.sketch;
    if (const Timing* timing = record.timing()) {
      result.seconds = MedianSeconds(*timing);
      result.raced_out = timing->raced_out;
    } else {
      ++errors_[ErrorKindName(record.error()->kind)];
    }
    const int before = task.Best(false);
    samples.push_back(task.Add(std::move(result)));
    ++measured_;
    scheduler_->Report(scheduled_as_[stored[i].task], task.BestSeconds());
    if (listener_ != nullptr) listener_->OnRecord(stored[i].task, record, task.Best(false) != before, Report());
  }
  model_->AddSamples(std::move(samples));
  return absl::OkStatus();
}

absl::Status Tuner::Impl::Verified(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again) {
  TaskState& task = *tasks_[pending.task];
  verifying_[pending.task] = false;
  lost_in_a_row_ = 0;
  Verdict verdict;
  if (outcome.verdict) {
    verdict = *outcome.verdict;
  } else if (const auto* error = std::get_if<MeasureError>(&outcome.outcome)) {
    // It was timed before and fails now: not to be trusted in a build.
    verdict = {false, std::numeric_limits<double>::infinity(),
               absl::StrCat(ErrorKindName(error->kind), " while verifying: ", error->text)};
  } else {
    return absl::OkStatus();  // a measurer that cannot verify: stays unknown
  }
  const int64_t record = task.results()[pending.result].record;
  RETURN_IF_ERROR(history_->SetVerified(record, verdict.ok, verdict.max_error, verdict.text));
  if (std::optional<Sample> sample = task.SetVerdict(pending.result, verdict.ok)) {
    std::vector<Sample> samples;
    samples.push_back(*std::move(sample));
    model_->AddSamples(std::move(samples));
  }
  if (!verdict.ok) {
    ++errors_[ErrorKindName(ErrorKind::kWrongResult)];
    scheduler_->Refute(scheduled_as_[pending.task], task.BestSeconds());
  }
  if (listener_ != nullptr) listener_->OnVerified(pending.task, record, verdict.ok, verdict.text);
  return absl::OkStatus();
}

// A fault of the infrastructure says nothing of the candidate: it is sent again a few times, then set free for a later
// round. When nothing else comes back, the run cannot go on.
absl::Status Tuner::Impl::Lost(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again) {
  const auto& error = std::get<MeasureError>(outcome.outcome);
  const int task = pending.task;
  if (!trials_over_) {
    ++errors_[ErrorKindName(error.kind)];
    if (++lost_in_a_row_ > std::max(4 * measurer_->slots(), 8 * kMaxAttempts)) {
      return absl::UnavailableError(absl::StrCat(
          "the last ", lost_in_a_row_, " measurements were lost to faults of the workers (", error.text,
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
  if (pending.result >= 0) {
    verifying_[task] = false;
    return absl::OkStatus();
  }
  --trials_pending_[task];
  scheduler_->Lost(scheduled_as_[task]);
  tasks_[task]->Release(pending.proposal.record.decision_hash);
  return absl::OkStatus();
}

void Tuner::Impl::Tick() {
  const double now = SystemClock();
  if (listener_ == nullptr || now - last_tick_ < kTickSeconds) return;
  last_tick_ = now;
  listener_->OnTick(Report());
}

// Proposes and measures until the budget is used up.
absl::Status Tuner::Impl::Loop(const std::atomic<bool>* stop) {
  while (true) {
    if (Stopped(stop)) {
      stopped_ = "stopped by request";
      return absl::OkStatus();
    }
    if (OutOfTime()) {
      stopped_ = "the time is over";
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(StartRounds());
    if (scheduler_->reason() != StopReason::kNone && !search_runs_) {
      stopped_ = StopReasonText(scheduler_->reason());
      return absl::OkStatus();
    }
    if (pending_.empty()) last_outcome_ = options_.clock();
    if (options_.clock() - last_outcome_ > options_.stall_s)
      return absl::DeadlineExceededError(absl::StrFormat(
          "no result of %d measurements has come for %.0f seconds: see to the workers and run the same command again, what was "
          "measured is kept",
          pending_.size(), options_.stall_s));
    if (std::optional<Event> event = events_.Pop(kTickSeconds)) RETURN_IF_ERROR(Handle(*std::move(event)));
    Tick();
  }
}

// Lets what runs end, then has the best of each task verified.
absl::Status Tuner::Impl::Drain(const std::atomic<bool>* stop) {
  const auto wait_while = [&](const auto& busy, double at_most) -> absl::Status {
    const double start = SystemClock();
    while (busy() && SystemClock() - start < at_most) {
      if (std::optional<Event> event = events_.Pop(kTickSeconds)) RETURN_IF_ERROR(Handle(*std::move(event)));
      Tick();
    }
    return absl::OkStatus();
  };
  if (OutOfTime() || Stopped(stop)) {
    trials_over_ = true;
    cancelled_ = Stopped(stop);
    measurer_->Cancel();
  }
  const double grace = trials_over_ ? options_.stop_grace_s : options_.stall_s;
  RETURN_IF_ERROR(wait_while([&] { return !pending_.empty() || search_runs_; }, grace));
  trials_over_ = true;
  const auto verifies = [&] { return std::find(verifying_.begin(), verifying_.end(), true) != verifying_.end(); };
  while (!Stopped(stop)) {
    for (int task : selected_) RETURN_IF_ERROR(Verify(task, true));
    if (!verifies()) break;
    const int64_t sent = next_request_;
    RETURN_IF_ERROR(wait_while([&] { return verifies() && next_request_ == sent && !Stopped(stop); }, options_.stall_s));
    if (verifies() && next_request_ == sent) break;  // stopped, or no answer comes
  }
  return absl::OkStatus();
}

// Ends the run in any case: the first error wins.
absl::Status Tuner::Impl::Close(absl::Status status) {
  if (!status.ok()) {
    stopped_ = std::string(status.message());
    measurer_->Cancel();
  }
  StopThreads();
  // What came in between is measured too.
  trials_over_ = cancelled_ = true;
  while (std::optional<Event> event = events_.Pop(0)) status.Update(Handle(*std::move(event)));
  status.Update(Store());
  if (run_id_ > 0) status.Update(history_->EndRun(run_id_));
  if (save_model_) {
    const absl::Status saved = model_->Save(options_.model_path);
    if (!saved.ok()) Warn(std::string(saved.message()));
  }
  return status;
}

absl::StatusOr<TuneReport> Tuner::Impl::Run(const std::atomic<bool>* stop) {
  absl::Status status = Start();
  if (status.ok()) status = Loop(stop);
  if (status.ok()) status = Drain(stop);
  status = Close(std::move(status));
  TuneReport report = Report();
  report.seconds_left.reset();
  report.stopped = stopped_;
  if (listener_ != nullptr) listener_->OnFinish(report);
  RETURN_IF_ERROR(status);
  return report;
}

TaskReport Tuner::Impl::ReportOf(const TaskState& task) const {
  TaskReport report;
  report.id = task.id();
  report.name = task.task().name;
  report.weight = task.weight();
  report.trials = static_cast<int64_t>(task.results().size());
  report.failed = task.failed();
  report.in_flight = trials_pending_[task.id()];
  report.selected = scheduled_as_[task.id()] >= 0;
  report.done = !report.selected || scheduler_->done(scheduled_as_[task.id()]);
  if (task.default_seconds() > 0) report.default_us = task.default_seconds() * 1e6;
  int best = task.Best(true);
  report.verified = best >= 0;
  if (best < 0) best = task.Best(false);
  if (best < 0) return report;
  const TrialResult& result = task.results()[best];
  report.best_us = result.seconds * 1e6;
  report.gflops = task.flops() / result.seconds / 1e9;
  report.best_record = result.record;
  report.sketch = result.sketch;
  return report;
}

TuneReport Tuner::Impl::Report() const {
  TuneReport report;
  double best = 0, before = 0;
  bool all_best = true, all_default = true;
  for (const auto& task : tasks_) {
    report.tasks.push_back(ReportOf(*task));
    const TaskReport& one = report.tasks.back();
    all_best = all_best && one.best_us;
    all_default = all_default && one.default_us;
    best += one.weight * one.best_us.value_or(0);
    before += one.weight * one.default_us.value_or(0);
    if (!one.selected) continue;
    report.trials += one.trials;
    report.failed += one.failed;
  }
  if (all_best) report.estimated_us = best;
  if (all_default) report.estimated_default_us = before;
  report.measured = measured_;
  report.in_flight = static_cast<int64_t>(pending_.size());
  report.seconds = options_.clock() - started_;
  if (report.seconds > 0) report.trials_per_s = static_cast<double>(measured_) / report.seconds;
  report.stages = stages_;
  const TrainingStats training = model_->stats();
  report.stages.train_s = training.seconds;
  report.stages.trainings = training.trainings;
  if (stages_.search_s > 0) report.stages.candidates_per_s = static_cast<double>(stages_.candidates) / stages_.search_s;
  report.errors.assign(errors_.begin(), errors_.end());
  std::stable_sort(report.errors.begin(), report.errors.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  if (report.trials_per_s > 0)
    report.seconds_left = std::max(0.0, static_cast<double>(options_.trials - report.trials) / report.trials_per_s);
  if (options_.seconds > 0) {
    const double left = std::max(0.0, options_.seconds - report.seconds);
    report.seconds_left = std::min(left, report.seconds_left.value_or(left));
  }
  return report;
}

Tuner::Tuner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tuner::~Tuner() = default;

absl::StatusOr<std::unique_ptr<Tuner>> Tuner::Create(std::vector<TuningTask> tasks, TunerOptions options,
                                                     Measurer* measurer, History* history, ProgressListener* listener) {
  auto impl = std::make_unique<Impl>(std::move(options), measurer, history, listener);
  RETURN_IF_ERROR(impl->Prepare(std::move(tasks)));
  return std::unique_ptr<Tuner>(new Tuner(std::move(impl)));
}

absl::StatusOr<TuneReport> Tuner::Run(const std::atomic<bool>* stop) { return impl_->Run(stop); }

}  // namespace diapason
