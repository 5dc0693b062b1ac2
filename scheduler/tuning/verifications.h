// Verification of the best candidate of each task during a run, and its second measurement at the end of the run.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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
  // Requests second measurements of the best candidates that need one; false if none does.
  absl::StatusOr<bool> ConfirmBests();
  // Takes the outcome of a second measurement. A failure changes nothing, since the candidate was verified: it keeps
  // its time, and is not measured again.
  absl::Status Confirmed(const Pending& pending, const MeasureOutcome& outcome);

  // A trial of the task has ended.
  void CountTrial(int task) { ++since_verified_[task]; }
  // Forgets a verification whose answer will not come.
  void GiveUp(int task) { verifying_[task] = false; }
  bool busy() const;
  // Seconds that the verifications and second measurements still to be made will take.
  double Reserve(const RunClock& clock) const;

 private:
  // Whether the best of a task waits for its verification.
  bool Unverified(int task) const;
  // The verified best of a task if it needs a second measurement, else -1.
  int Unconfirmed(int task) const;
  // Uses the verdict that an earlier run has recorded for a result; false if there is none.
  bool ReplayVerdict(int task, int result);

  const RunContext context_;
  Requests& requests_;
  Results& results_;
  Replays& replays_;
  std::vector<int> since_verified_;  // of each task: trials
  std::vector<bool> verifying_;      // or being confirmed
};

}  // namespace diapason::tuning
