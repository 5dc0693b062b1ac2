// Outcomes of trials on their way: into the history first, then to what learns from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/tuning/tasks.h"
#include "scheduler/tuning/trial.h"

namespace diapason::tuning {

class Results {
 public:
  // `best`: whether the record is the task's new best.
  using OnRecord = std::function<void(int task, const TuningRecord& record, bool best)>;

  // `on_record`: called for each result that was measured, when it is concluded.
  Results(const RunContext& context, OnRecord on_record);

  // Records belong to this run of the history.
  void BeginRun(int64_t run) { run_ = run; }
  // The outcome of a trial.
  void Add(Pending pending, const MeasureOutcome& outcome);
  // One that is in the history already.
  void AddReplayed(int task, TuningRecord record, const Proposal& proposal);
  // A record of an earlier run: counts and is learnt from; `of_this_run`: it is this one, resumed.
  void Restore(int task, const TuningRecord& record, bool of_this_run, std::vector<Sample>* samples);

  // Writes what has ended into the history: before anything is reported or concluded from it.
  absl::Status Store();
  // Learns from what is stored.
  void Conclude();
  bool to_conclude() const { return !stored_.empty(); }
  // What a verdict that is in the history means for the run.
  void Judge(int task, int result, const Verdict& verdict);

  void CountError(ErrorKind kind) { ++errors_[ErrorKindName(kind)]; }
  const std::map<std::string, int64_t>& errors() const { return errors_; }
  int64_t known_record() const { return known_record_; }         // the last one that was concluded
  int64_t measured() const { return measured_ - replays_; }      // without those that were in the history
  int64_t without_gain() const { return measured_ - gain_at_; }  // trials since the last new best

 private:
  const RunContext context_;
  const OnRecord on_record_;
  int64_t run_ = 0;
  std::vector<int64_t> next_trial_;  // of each task
  std::vector<Finished> finished_;   // not stored yet
  std::vector<Finished> stored_;     // not concluded yet
  int64_t known_record_ = 0;
  int64_t measured_ = 0, gain_at_ = 0;  // gain_at_: measured_ at the last new best
  int64_t replays_ = 0;                 // of these, those that were replayed
  std::map<std::string, int64_t> errors_;
};

}  // namespace diapason::tuning
