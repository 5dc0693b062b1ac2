#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "scheduler/tuner_impl.h"

namespace diapason {

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
  // Otherwise the run that goes on with this one begins this search again.
  if (!trials_over_) RETURN_IF_ERROR(NoteRound(done));
  if (found == 0) return absl::OkStatus();
  return SubmitTrials(done.task, std::move(done.proposals));
}

absl::Status Tuner::Impl::HandleOutcomes(std::vector<MeasureOutcome> outcomes) {
  const double now = options_.clock();
  const double each = (now - last_outcome_) / static_cast<double>(std::max<size_t>(1, outcomes.size()));
  last_outcome_ = now;
  std::vector<Pending> again;
  std::set<int> touched;
  for (const MeasureOutcome& outcome : outcomes) {
    const auto found = pending_.find(outcome.id);
    if (found == pending_.end()) continue;  // answered twice
    Pending pending = std::move(found->second);
    pending_.erase(found);
    touched.insert(pending.task);
    const bool trial = pending.result < 0;
    if (!pending.confirms) {
      Pace& pace = trial ? trial_pace_ : verification_pace_;
      pace.seconds += each;
      ++pace.outcomes;
    }
    if (!SpeaksOfCandidate(outcome.outcome)) {
      RETURN_IF_ERROR(Lost(std::move(pending), outcome, &again));
    } else if (trial) {
      RETURN_IF_ERROR(TrialEnded(std::move(pending), outcome, &again));
    } else if (pending.confirms) {
      RETURN_IF_ERROR(Confirmed(pending, outcome));
    } else {
      // What it verifies may be among the trials of this very batch.
      RETURN_IF_ERROR(Store());
      Conclude();
      RETURN_IF_ERROR(Verified(std::move(pending), outcome, &again));
    }
  }
  RETURN_IF_ERROR(Store());
  if (!cancelled_) RETURN_IF_ERROR(Submit(std::move(again)));
  if (!options_.synchronous || pending_.empty()) Conclude();
  if (!options_.synchronous) model_->Train();
  if (!cancelled_) {
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
  if (broken)
    record.outcome = MeasureError{ErrorKind::kUnknown, MeasureStage::kRun, "the measurement gave no time above 0"};
  if (timing != nullptr && !broken) {
    stages_.build_s += timing->build_seconds;
    stages_.run_s += timing->run_seconds;
  }
  lost_in_a_row_ = 0;
  --trials_pending_[pending.task];
  ++since_verified_[pending.task];
  finished_.push_back({pending.task, std::move(record), pending.proposal.space, pending.order});
  return absl::OkStatus();
}

// Everything measured goes into the history before anything is reported or concluded from it.
absl::Status Tuner::Impl::Store() {
  if (finished_.empty()) return absl::OkStatus();
  std::vector<TuningRecord> records;
  for (const Finished& finished : finished_) records.push_back(finished.record);
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, history_->Append(records));
  for (size_t i = 0; i < finished_.size(); ++i) {
    finished_[i].record.id = ids[i];
    stored_.push_back(std::move(finished_[i]));
  }
  finished_.clear();
  return absl::OkStatus();
}

void Tuner::Impl::Conclude() {
  std::vector<Sample> samples;
  std::vector<Finished> stored = std::exchange(stored_, {});
  if (options_.synchronous)
    std::sort(stored.begin(), stored.end(), [](const auto& a, const auto& b) { return a.order < b.order; });
  for (const Finished& one : stored) {
    const TuningRecord& record = one.record;
    known_record_ = std::max(known_record_, record.id);
    TaskState& task = *tasks_[one.task];
    TrialResult result;
    result.record = record.id;
    result.hash = record.configuration_hash;
    result.space = one.space;
    result.configuration = record.configuration;
    result.schedule = record.schedule;
    result.sketch = record.sketch;
    if (const Timing* timing = record.timing()) {
      result.seconds = MedianSeconds(*timing);
      result.stopped_early = timing->stopped_early;
      result.samples = static_cast<int>(timing->samples.size());
    } else {
      ++errors_[ErrorKindName(record.error()->kind)];
    }
    const int before = task.Best(false);
    samples.push_back(task.Add(std::move(result)));
    ++measured_;
    if (one.replayed) ++replays_;
    if (task.Best(false) != before) gain_at_ = measured_;
    scheduler_->Report(scheduled_as_[one.task], task.BestSeconds());
    if (listener_ != nullptr && !one.replayed)
      listener_->OnRecord(one.task, record, task.Best(false) != before, Report());
  }
  model_->AddSamples(std::move(samples), known_record_);
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
  Judge(pending.task, pending.result, verdict);
  if (listener_ != nullptr) listener_->OnVerified(pending.task, record, verdict.ok, verdict.text);
  return absl::OkStatus();
}

int Tuner::Impl::Unconfirmed(int id) const {
  const TaskState& task = *tasks_[id];
  const int best = task.Best(true);
  if (best < 0 || scheduled_as_[id] < 0 || scheduler_->Weight(scheduled_as_[id]) <= 0) return -1;
  return task.results()[best].samples > options_.confirming_samples ? -1 : best;
}

absl::StatusOr<bool> Tuner::Impl::ConfirmBests() {
  if (options_.confirming_samples <= 0 || options_.synchronous) return false;
  std::vector<Pending> pending;
  for (int id : selected_) {
    const int best = Unconfirmed(id);
    if (best < 0 || verifying_[id]) continue;
    verifying_[id] = true;
    ++stages_.confirmations;
    Pending one;
    one.task = id;
    one.result = best;
    one.confirms = true;
    MeasureOptions measure = options_.measure;
    measure.race = false;
    measure.repeat = options_.confirming_samples;
    one.request = {
        0, tasks_[id]->workload(), tasks_[id]->results()[best].schedule, options_.target.ToString(), measure, 0, false};
    pending.push_back(std::move(one));
  }
  if (pending.empty()) return false;
  RETURN_IF_ERROR(Submit(std::move(pending)));
  return true;
}

// A failure says nothing that would not be known: it was verified. It keeps its time, and is not asked again.
absl::Status Tuner::Impl::Confirmed(const Pending& pending, const MeasureOutcome& outcome) {
  TaskState& task = *tasks_[pending.task];
  verifying_[pending.task] = false;
  lost_in_a_row_ = 0;
  const TrialResult& result = task.results()[pending.result];
  const int samples = std::max(result.samples, options_.confirming_samples + 1);
  double seconds = result.seconds;
  const auto* timing = std::get_if<Timing>(&outcome.outcome);
  const bool usable = timing != nullptr && !timing->samples.empty() &&
                      std::all_of(timing->samples.begin(), timing->samples.end(),
                                  [](double sample) { return std::isfinite(sample) && sample > 0; });
  if (usable) {
    ASSIGN_OR_RETURN(seconds, history_->AddSamples(result.record, timing->samples));
    stages_.run_s += timing->run_seconds;
  }
  task.SetTime(pending.result, seconds, samples);
  scheduler_->Refute(scheduled_as_[pending.task], task.BestSeconds());
  return absl::OkStatus();
}

// What a verdict that is in the history means for the run.
void Tuner::Impl::Judge(int id, int result, const Verdict& verdict) {
  TaskState& task = *tasks_[id];
  if (std::optional<Sample> sample = task.SetVerdict(result, verdict.ok)) {
    std::vector<Sample> samples;
    samples.push_back(*std::move(sample));
    model_->AddSamples(std::move(samples));
  }
  if (verdict.ok) return;
  ++errors_[ErrorKindName(ErrorKind::kWrongResult)];
  scheduler_->Refute(scheduled_as_[id], task.BestSeconds());
}

// A fault of the infrastructure says nothing of the candidate: it is sent again a few times, then set free for a later
// round. When nothing else comes back, the run cannot go on.
absl::Status Tuner::Impl::Lost(Pending pending, const MeasureOutcome& outcome, std::vector<Pending>* again) {
  const auto& error = std::get<MeasureError>(outcome.outcome);
  const int task = pending.task;
  if (!trials_over_) {
    ++errors_[ErrorKindName(error.kind)];
    if (++lost_in_a_row_ > std::max(4 * measurer_->slots(), 8 * kMaxAttempts)) {
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
  if (pending.result >= 0) {
    verifying_[task] = false;
    return absl::OkStatus();
  }
  --trials_pending_[task];
  scheduler_->Lost(scheduled_as_[task]);
  tasks_[task]->Release(pending.proposal.record.configuration_hash);
  return absl::OkStatus();
}

}  // namespace diapason
