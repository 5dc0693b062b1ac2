// The bests of tasks: verified during the run, measured again at its end.
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

  // Has the best of a task verified, unless it is. During the run that is done once a round, since a best is
  // often overtaken by the next; `eager`: now.
  absl::Status Verify(int task, bool eager);
  // What came back of it. The verdict is in the history before it counts.
  absl::Status Verified(const Pending& pending, const MeasureOutcome& outcome);
  // Has the bests measured again that want it; false when there is none.
  absl::StatusOr<bool> ConfirmBests();
  // A failure says nothing that would not be known: it was verified. It keeps its time, and is not asked again.
  absl::Status Confirmed(const Pending& pending, const MeasureOutcome& outcome);

  // A trial of the task has ended.
  void CountTrial(int task) { ++since_verified_[task]; }
  // No answer is waited for any more.
  void GiveUp(int task) { verifying_[task] = false; }
  bool busy() const;
  // Seconds that it will take to verify the bests that are not verified yet, and to measure bests again.
  double Reserve(const RunClock& clock) const;

 private:
  // Whether the best of a task waits for its verification.
  bool Unverified(int task) const;
  // The verified best of a task if it wants further samples; -1: none does.
  int Unconfirmed(int task) const;
  // Gives the verdict that the continued runs have of a result; false when they have none.
  bool ReplayVerdict(int task, int result);

  const RunContext context_;
  Requests& requests_;
  Results& results_;
  Replays& replays_;
  std::vector<int> since_verified_;  // of each task: trials
  std::vector<bool> verifying_;      // or being confirmed
};

}  // namespace diapason::tuning
