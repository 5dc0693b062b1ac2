// Verification of the best candidate of each task during a run, and its second measurement at the end of the run, in
// turns with its contenders.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/tuning/contenders.h"
#include "scheduler/tuning/replays.h"
#include "scheduler/tuning/requests.h"
#include "scheduler/tuning/results.h"
#include "scheduler/tuning/run_clock.h"
#include "scheduler/tuning/tasks.h"
#include "scheduler/tuning/trial.h"

namespace diapason::tuning {

class Verifications {
 public:
  Verifications(const RunContext& context, Requests& requests, Results& results, Replays& replays);

  // Requests the verification of a task's best candidate, unless it is verified. At most once a round, since the best
  // is often replaced soon after; `eager`: now.
  absl::Status Verify(int task, bool eager);
  // Takes the outcome of a verification. The verdict is in the history before it counts.
  absl::Status Verified(const Pending& pending, const MeasureOutcome& outcome);
  // Requests second measurements of the best candidates that need one; false if none does. They are submitted in the
  // order in which they are to be measured.
  absl::StatusOr<bool> ConfirmBests(const RunClock& clock);
  // Takes the outcome of a second measurement. With the last one of the task, all are added to the samples of their
  // candidates. A failure changes nothing, since the candidate ran before: it keeps its time. Of a best, it is not
  // measured again.
  absl::Status Confirmed(const Pending& pending, const MeasureOutcome& outcome);

  // A trial of the task has ended.
  void CountTrial(int task) { ++since_verified_[task]; }
  // Forgets a verification whose answer will not come.
  void GiveUp(int task) {
    verifying_[task] = false;
    confirming_[task].reset();
  }
  bool busy() const;
  // Seconds that the verifications and second measurements still to be made will take.
  double Reserve(const RunClock& clock) const;

 private:
  struct Confirmation {
    int task;
    Turns turns;
    double sample;   // least seconds of one
    double seconds;  // that it is expected to take
  };

  // Whether the best of a task waits for its verification.
  bool Unverified(int task) const;
  // The verified best of a task if it needs a second measurement, else -1.
  int Unconfirmed(int task) const;
  // What is to be measured again now: first the tasks in which the network spends most.
  std::vector<Confirmation> Confirmations(const RunClock& clock) const;
  Confirmation AloneOrInTurns(int task, double at_most, const RunClock& clock) const;
  // Stores what a candidate took when it was measured again.
  absl::Status TakeTime(int task, int result, const Turns& turns);
  // Uses the verdict that an earlier run has recorded for a result; false if there is none.
  bool ReplayVerdict(int task, int result);

  const RunContext context_;
  Requests& requests_;
  Results& results_;
  Replays& replays_;
  std::vector<int> since_verified_;               // of each task: trials
  std::vector<bool> verifying_;                   // or being confirmed
  std::vector<std::optional<Turns>> confirming_;  // of each task: under way
};

}  // namespace diapason::tuning
