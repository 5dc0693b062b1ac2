#include "scheduler/tuning/verifications.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason::tuning {
namespace {

// Of the time of a run, for contenders that are measured in turns.
constexpr double kShareOfTurns = 0.1;
// About so many runs are enough for a sample in turns on a GPU: the median of all turns decides, and the clock's drift
// is larger than what such samples differ by.
constexpr double kRunsInTurns = 1000;

}  // namespace

Verifications::Verifications(const RunContext& context, Requests& requests, Results& results, Replays& replays)
    : context_(context),
      requests_(requests),
      results_(results),
      replays_(replays),
      since_verified_(context.tasks.all.size()),
      verifying_(context.tasks.all.size()),
      confirming_(context.tasks.all.size()) {}

bool Verifications::busy() const { return std::find(verifying_.begin(), verifying_.end(), true) != verifying_.end(); }

double Verifications::Reserve(const RunClock& clock) const {
  const auto unverified = std::count_if(context_.tasks.selected.begin(), context_.tasks.selected.end(),
                                        [this](int id) { return Unverified(id); });
  double reserve = clock.verification_seconds() * static_cast<double>(unverified);
  for (const Confirmation& confirmation : Confirmations(clock)) reserve += confirmation.seconds;
  return reserve;
}

bool Verifications::Unverified(int id) const {
  const TaskState& task = context_.tasks.at(id);
  const int best = task.results().Best(false);
  if (best < 0) return false;
  const TrialResult& result = task.results()[best];
  return result.verified != Verified::kOk && result.verify_attempts < kMaxAttempts;
}

absl::Status Verifications::Verify(int id, bool eager) {
  if (verifying_[id] || context_.tasks.scheduled_as[id] < 0 || !Unverified(id)) return absl::OkStatus();
  TaskState& task = context_.tasks.at(id);
  const int best = task.results().Best(false);
  const TrialResult& result = task.results()[best];
  const bool due = requests_.waiting(id) == 0 ||
                   (!context_.options.synchronous &&
                    (since_verified_[id] >= context_.tasks.round_size || task.results().Best(true) < 0));
  if (!eager && !due) return absl::OkStatus();
  if (ReplayVerdict(id, best)) return Verify(id, eager);
  verifying_[id] = true;
  since_verified_[id] = 0;
  task.CountVerifyAttempt(best);
  ++context_.stages.verifications;
  Pending one;
  one.task = id;
  one.result = best;
  one.request = {0,   task.workload(), result.schedule, context_.options.target.ToString(), context_.options.measure, 0,
                 true};
  std::vector<Pending> pending;
  pending.push_back(std::move(one));
  return requests_.Submit(std::move(pending));
}

bool Verifications::ReplayVerdict(int task, int result) {
  const std::optional<TuningRecord> known = replays_.TakeVerdict(context_.tasks.at(task).results()[result].record);
  if (!known.has_value()) return false;
  context_.tasks.at(task).CountVerifyAttempt(result);
  // What a network showed later was not known to the run that is played again.
  const bool ok = known->verified == Verified::kOk || known->verified == Verified::kWrongInNetwork;
  results_.Judge(task, result, {ok, known->max_error.value_or(0), known->verify_text});
  return true;
}

absl::Status Verifications::Verified(const Pending& pending, const MeasureOutcome& outcome) {
  TaskState& task = context_.tasks.at(pending.task);
  verifying_[pending.task] = false;
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
  RETURN_IF_ERROR(context_.history.SetVerified(record, verdict.ok, verdict.max_error, verdict.text));
  results_.Judge(pending.task, pending.result, verdict);
  if (context_.listener != nullptr) context_.listener->OnVerified(pending.task, record, verdict.ok, verdict.text);
  return absl::OkStatus();
}

int Verifications::Unconfirmed(int id) const {
  const TaskState& task = context_.tasks.at(id);
  const int best = task.results().Best(true);
  if (best < 0 || context_.tasks.scheduled_as[id] < 0 ||
      context_.tasks.scheduler->Weight(context_.tasks.scheduled_as[id]) <= 0)
    return -1;
  return task.results()[best].samples > context_.options.confirming_samples ? -1 : best;
}

std::vector<Verifications::Confirmation> Verifications::Confirmations(const RunClock& clock) const {
  const TunerOptions& options = context_.options;
  std::vector<Confirmation> confirmations;
  if (options.confirming_samples <= 0 || options.synchronous) return confirmations;
  std::vector<std::pair<double, int>> tasks;  // by what the network spends in them
  for (int id : context_.tasks.selected) {
    const int best = Unconfirmed(id);
    if (best < 0) continue;
    const double weight = context_.tasks.scheduler->Weight(context_.tasks.scheduled_as[id]);
    tasks.emplace_back(weight * context_.tasks.at(id).results()[best].seconds, id);
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  double left = kShareOfTurns * clock.Seconds();
  if (options.seconds > 0) left = std::min(kShareOfTurns * options.seconds, options.seconds - clock.Seconds());
  for (const auto& [spent, id] : tasks) {
    confirmations.push_back(AloneOrInTurns(id, left, clock));
    if (!confirmations.back().turns.alone()) left -= confirmations.back().seconds;
  }
  return confirmations;
}

Verifications::Confirmation Verifications::AloneOrInTurns(int id, double at_most, const RunClock& clock) const {
  const TunerOptions& options = context_.options;
  const TrialResults& results = context_.tasks.at(id).results();
  const int best = Unconfirmed(id);
  const double sample = std::max(options.measure.min_repeat_ms * 1e-3, 0.0);
  // Other programs disturb processors for longer than that; and a flush takes longer than many runs.
  const bool runs_are_enough = options.target.kind == TargetKind::kCuda && options.target.caches != Caches::kFlushed;
  const double in_turns = runs_are_enough ? std::min(sample, kRunsInTurns * results[best].seconds) : sample;
  Turns turns(ContendersOf(results, best, {options.contenders, options.confirming_samples, kMaxAttempts}),
              options.confirming_samples);
  if (!turns.alone()) {
    // Their programs are built already, so that they wait for the device alone.
    const double run = context_.stages.run_s / static_cast<double>(std::max<int64_t>(1, results_.measured()));
    const double each =
        std::min(clock.trial_seconds(), run) + std::max(in_turns, results[best].seconds) * turns.samples();
    const double seconds = each * static_cast<double>(turns.Order().size());
    if (seconds <= at_most) return {id, std::move(turns), in_turns, seconds};
  }
  return {id, Turns({best}, options.confirming_samples), sample,
          clock.trial_seconds() + sample * options.confirming_samples};
}

absl::StatusOr<bool> Verifications::ConfirmBests(const RunClock& clock) {
  std::vector<Pending> pending;
  for (Confirmation& confirmation : Confirmations(clock)) {
    if (verifying_[confirmation.task]) continue;
    const TaskState& task = context_.tasks.at(confirmation.task);
    MeasureOptions measure = context_.options.measure;
    measure.race = false;
    measure.repeat = confirmation.turns.samples();
    measure.min_repeat_ms = confirmation.sample * 1e3;
    for (int result : confirmation.turns.Order()) {
      ++context_.stages.confirmations;
      Pending one;
      one.task = confirmation.task;
      one.result = result;
      one.confirms = true;
      one.request = {
          0, task.workload(), task.results()[result].schedule, context_.options.target.ToString(), measure, 0, false};
      pending.push_back(std::move(one));
    }
    verifying_[confirmation.task] = true;
    confirming_[confirmation.task] = std::move(confirmation.turns);
  }
  if (pending.empty()) return false;
  RETURN_IF_ERROR(requests_.Submit(std::move(pending)));
  return true;
}

absl::Status Verifications::Confirmed(const Pending& pending, const MeasureOutcome& outcome) {
  std::optional<Turns>& turns = confirming_[pending.task];
  if (!turns.has_value()) return absl::OkStatus();
  const auto* timing = std::get_if<Timing>(&outcome.outcome);
  const bool usable =
      timing != nullptr && std::all_of(timing->samples.begin(), timing->samples.end(),
                                       [](double sample) { return std::isfinite(sample) && sample > 0; });
  turns->Add(pending.result, usable ? timing->samples : std::vector<double>());
  if (usable) context_.stages.run_s += timing->run_seconds;
  if (!turns->complete()) return absl::OkStatus();
  const Turns ended = *std::exchange(turns, std::nullopt);
  verifying_[pending.task] = false;
  for (int contender : ended.contenders()) RETURN_IF_ERROR(TakeTime(pending.task, contender, ended));
  context_.tasks.scheduler->Refute(context_.tasks.scheduled_as[pending.task],
                                   context_.tasks.at(pending.task).results().BestSeconds());
  return absl::OkStatus();
}

absl::Status Verifications::TakeTime(int id, int index, const Turns& turns) {
  TaskState& task = context_.tasks.at(id);
  const TrialResult& result = task.results()[index];
  const std::vector<double> samples = turns.SamplesOf(index);
  // Otherwise it would count as measured in full.
  if (samples.empty() && index != turns.contenders().front()) return absl::OkStatus();
  double seconds = result.seconds;
  if (!samples.empty()) {
    ASSIGN_OR_RETURN(seconds, context_.history.AddSamples(result.record, samples));
  }
  const int count = result.samples + static_cast<int>(samples.size());
  task.SetTime(index, seconds, std::max(count, context_.options.confirming_samples + 1));
  return absl::OkStatus();
}

}  // namespace diapason::tuning
