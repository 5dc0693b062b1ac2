#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "scheduler/tuner_impl.h"

namespace diapason {

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

absl::Status Tuner::Impl::Prepare(std::vector<TuningTask> tasks) {
  if (options_.trials < 1)
    return absl::InvalidArgumentError(absl::StrCat("the number of trials is ", options_.trials, ": give at least 1"));
  if (options_.trials_per_round < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("the number of trials per round is ", options_.trials_per_round, ": give at least 1"));
  if (options_.seconds < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("the time limit is ", options_.seconds, " seconds: give 0 for none"));
  if (options_.synchronous) options_.rounds = nullptr;
  if (tasks.empty())
    return absl::InvalidArgumentError("there is no task to tune: the network has no operator that runs");

  scheduled_as_.assign(tasks.size(), -1);
  std::set<int> only(options_.only.begin(), options_.only.end());
  for (int id : only)
    if (id < 0 || id >= static_cast<int>(tasks.size()))
      return absl::InvalidArgumentError(absl::StrCat("there is no task ", id, ": choose from 0 to ", tasks.size() - 1));
  for (int id = 0; id < static_cast<int>(tasks.size()); ++id)
    if (only.empty() || only.count(id) > 0) selected_.push_back(id);

  for (const TuningTask& task : tasks)
    usual_.push_back(std::any_of(task.weights.begin(), task.weights.end(),
                                 [](const NetworkWeight& weight) { return weight.weight > 0; }));
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
  ASSIGN_OR_RETURN(Objective objective, Objective::Parse(options_.objective, weights, ScheduledChoices()));
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
  if (!options_.learn) model.min_samples = std::numeric_limits<int>::max();
  model_ = std::make_unique<XgbCostModel>(std::move(model));

  trials_pending_.resize(tasks_.size());
  since_verified_.resize(tasks_.size());
  verifying_.resize(tasks_.size());
  next_trial_.resize(tasks_.size());
  to_replay_.resize(tasks_.size());
  return absl::OkStatus();
}

// The choices that can be made, by tasks as the scheduler knows them.
std::vector<NetworkChoice> Tuner::Impl::ScheduledChoices() {
  std::vector<NetworkChoice> scheduled;
  for (size_t c = 0; c < options_.choices.size(); ++c) {
    NetworkChoice choice = options_.choices[c];
    bool tuned = true;
    for (auto& way : choice.ways)
      for (auto& [task, times] : way) {
        task = scheduled_as_[task];
        tuned = tuned && task >= 0;
      }
    if (!tuned) continue;
    scheduled.push_back(std::move(choice));
    choices_.push_back(static_cast<int>(c));
  }
  return scheduled;
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
  ASSIGN_OR_RETURN(correction_, ReadCorrection());
  RETURN_IF_ERROR(Resume());
  if (listener_ != nullptr) listener_->OnStart(Report());
  RETURN_IF_ERROR(ResumeRounds());
  collecting_ = std::thread([this] { Collect(); });
  return absl::OkStatus();
}

void Tuner::Impl::StopThreads() {
  end_collecting_ = true;
  if (collecting_.joinable()) collecting_.join();
  if (searching_.joinable()) searching_.join();
}

// Proposes and measures until the budget is used up.
absl::Status Tuner::Impl::Loop(const std::atomic<bool>* stop) {
  while (true) {
    if (Stopped(stop)) {
      stopped_ = "stopped by request";
      return absl::OkStatus();
    }
    const int64_t waiting = std::accumulate(trials_pending_.begin(), trials_pending_.end(), int64_t{0});
    if (OutOfTime(VerificationReserve() + trial_pace_.mean() * static_cast<double>(waiting))) {
      stopped_ = "time limit reached";
      trials_over_ = true;
      return absl::OkStatus();
    }
    if (OutOfPatience()) {
      stopped_ = absl::StrCat("no gain in ", options_.patience, " trials");
      trials_over_ = true;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(StartRounds());
    if (scheduler_->reason() != StopReason::kNone && !search_runs_) {
      stopped_ = StopReasonText(scheduler_->reason());
      return absl::OkStatus();
    }
    if (pending_.empty()) last_outcome_ = options_.clock();
    if (options_.clock() - last_outcome_ > options_.stall_s)
      return absl::DeadlineExceededError(
          absl::StrFormat("no result of %d measurements has come for %.0f seconds: see to the workers and run the same "
                          "command again, what was "
                          "measured is kept",
                          pending_.size(), options_.stall_s));
    if (std::optional<Event> event = events_.Pop(kTickSeconds)) RETURN_IF_ERROR(Handle(*std::move(event)));
    Tick();
  }
}

double Tuner::Impl::VerificationReserve() const {
  const auto unverified = std::count_if(selected_.begin(), selected_.end(), [this](int id) { return Unverified(id); });
  const double each = verification_pace_.outcomes > 0 ? verification_pace_.mean() : trial_pace_.mean();
  double reserve = each * static_cast<double>(unverified);
  if (options_.confirming_samples > 0 && !options_.synchronous) {
    const auto unconfirmed =
        std::count_if(selected_.begin(), selected_.end(), [this](int id) { return Unconfirmed(id) >= 0; });
    const double sample = std::max(options_.measure.min_repeat_ms * 1e-3, 0.0);
    reserve += static_cast<double>(unconfirmed) * (trial_pace_.mean() + sample * options_.confirming_samples);
  }
  return reserve;
}

absl::StatusOr<double> Tuner::Impl::ReadCorrection() {
  if (options_.latency_network.empty()) return 1;
  ASSIGN_OR_RETURN(const std::optional<NetworkLatency> latency,
                   history_->Latency(options_.latency_network, options_.target.ToString(), options_.facts.model));
  return latency.has_value() ? Correction(latency->measured, latency->tasks) : 1;
}

bool Tuner::Impl::OutOfTime(double reserve) const {
  if (options_.seconds <= 0) return false;
  return options_.clock() - started_ >= options_.seconds - std::min(reserve, options_.seconds / 2);
}

bool Tuner::Impl::OutOfPatience() const {
  if (options_.patience <= 0 || measured_ - gain_at_ < options_.patience) return false;
  return scheduler_->Value().has_value();
}

// Verifications without an answer may be asked for anew. A trial that still answers is stored.
void Tuner::Impl::GiveUpVerifications() {
  std::erase_if(pending_, [this](const auto& entry) {
    const Pending& pending = entry.second;
    if (pending.result >= 0) verifying_[pending.task] = false;
    return pending.result >= 0;
  });
}

// Lets what runs end, then has the best of each task verified.
absl::Status Tuner::Impl::Drain(const std::atomic<bool>* stop) {
  const auto wait_while = [&](const auto& busy, double at_most) -> absl::Status {
    const double start = MonotonicSeconds();
    while (busy() && MonotonicSeconds() - start < at_most) {
      if (std::optional<Event> event = events_.Pop(kTickSeconds)) RETURN_IF_ERROR(Handle(*std::move(event)));
      Tick();
    }
    return absl::OkStatus();
  };
  const auto busy = [&] { return !pending_.empty() || search_runs_; };
  const auto in_time = [&] { return !Stopped(stop) && !OutOfTime(VerificationReserve()); };
  RETURN_IF_ERROR(wait_while([&] { return busy() && in_time(); }, options_.stall_s));
  if (busy()) {
    trials_over_ = true;
    cancelled_ = Stopped(stop);
    measurer_->Cancel();
    RETURN_IF_ERROR(wait_while(busy, options_.stop_grace_s));
    GiveUpVerifications();
  }
  Conclude();
  trials_over_ = true;
  const auto verifies = [&] { return std::find(verifying_.begin(), verifying_.end(), true) != verifying_.end(); };
  for (int confirmed = 0; !Stopped(stop);) {
    for (int task : selected_) RETURN_IF_ERROR(Verify(task, true));
    if (!verifies()) {
      // All are verified. What is measured again may fall behind another one.
      if (confirmed++ == kMostConfirmations || (confirmed > 1 && OutOfTime(0))) break;
      ASSIGN_OR_RETURN(const bool confirming, ConfirmBests());
      if (!confirming) break;
    }
    const int64_t sent = next_request_;
    RETURN_IF_ERROR(
        wait_while([&] { return verifies() && next_request_ == sent && !Stopped(stop); }, options_.stall_s));
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
  Conclude();
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
  if (status.ok() && !Stopped(stop)) status = ForgetRounds();
  TuneReport report = Report();
  report.seconds_left.reset();
  report.stopped = stopped_;
  if (listener_ != nullptr) listener_->OnFinish(report);
  RETURN_IF_ERROR(status);
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
