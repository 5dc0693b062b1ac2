#include "scheduler/tuning/verifications.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason::tuning {

Verifications::Verifications(const RunContext& context, Requests& requests, Results& results, Replays& replays)
    : context_(context),
      requests_(requests),
      results_(results),
      replays_(replays),
      since_verified_(context.tasks.all.size()),
      verifying_(context.tasks.all.size()) {}

bool Verifications::busy() const { return std::find(verifying_.begin(), verifying_.end(), true) != verifying_.end(); }

double Verifications::Reserve(const RunClock& clock) const {
  const auto unverified = std::count_if(context_.tasks.selected.begin(), context_.tasks.selected.end(),
                                        [this](int id) { return Unverified(id); });
  const double each = clock.verification_seconds();
  double reserve = each * static_cast<double>(unverified);
  if (context_.options.confirming_samples > 0 && !context_.options.synchronous) {
    const auto unconfirmed = std::count_if(context_.tasks.selected.begin(), context_.tasks.selected.end(),
                                           [this](int id) { return Unconfirmed(id) >= 0; });
    const double sample = std::max(context_.options.measure.min_repeat_ms * 1e-3, 0.0);
    reserve +=
        static_cast<double>(unconfirmed) * (clock.trial_seconds() + sample * context_.options.confirming_samples);
  }
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

absl::StatusOr<bool> Verifications::ConfirmBests() {
  if (context_.options.confirming_samples <= 0 || context_.options.synchronous) return false;
  std::vector<Pending> pending;
  for (int id : context_.tasks.selected) {
    const int best = Unconfirmed(id);
    if (best < 0 || verifying_[id]) continue;
    verifying_[id] = true;
    ++context_.stages.confirmations;
    Pending one;
    one.task = id;
    one.result = best;
    one.confirms = true;
    MeasureOptions measure = context_.options.measure;
    measure.race = false;
    measure.repeat = context_.options.confirming_samples;
    one.request = {0,
                   context_.tasks.at(id).workload(),
                   context_.tasks.at(id).results()[best].schedule,
                   context_.options.target.ToString(),
                   measure,
                   0,
                   false};
    pending.push_back(std::move(one));
  }
  if (pending.empty()) return false;
  RETURN_IF_ERROR(requests_.Submit(std::move(pending)));
  return true;
}

absl::Status Verifications::Confirmed(const Pending& pending, const MeasureOutcome& outcome) {
  TaskState& task = context_.tasks.at(pending.task);
  verifying_[pending.task] = false;
  const TrialResult& result = task.results()[pending.result];
  const int samples = std::max(result.samples, context_.options.confirming_samples + 1);
  double seconds = result.seconds;
  const auto* timing = std::get_if<Timing>(&outcome.outcome);
  const bool usable = timing != nullptr && !timing->samples.empty() &&
                      std::all_of(timing->samples.begin(), timing->samples.end(),
                                  [](double sample) { return std::isfinite(sample) && sample > 0; });
  if (usable) {
    ASSIGN_OR_RETURN(seconds, context_.history.AddSamples(result.record, timing->samples));
    context_.stages.run_s += timing->run_seconds;
  }
  task.SetTime(pending.result, seconds, samples);
  context_.tasks.scheduler->Refute(context_.tasks.scheduled_as[pending.task], task.results().BestSeconds());
  return absl::OkStatus();
}

}  // namespace diapason::tuning
