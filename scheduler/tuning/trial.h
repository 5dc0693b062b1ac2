// What a tuning run passes between its parts: proposals, requests on their way, results.
//
// One thread owns the state of a run; its parts have no locks. What other threads find comes by the queue of events.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "db/history.h"
#include "scheduler/measurer.h"
#include "scheduler/progress.h"
#include "scheduler/task_state.h"
#include "scheduler/tuner.h"

namespace diapason::tuning {

// Times that a candidate is sent again after a fault of the infrastructure, and a best is verified.
inline constexpr int kMaxAttempts = 3;
inline constexpr double kTickSeconds = 0.1;

// A candidate ready to be measured.
struct Proposal {
  TuningRecord record;  // all but its outcome
  int space = 0;
  int64_t order = 0;  // among all proposals, where it matters; 0: that of the requests
};

Proposal MakeProposal(const TaskState& task, const Candidate& candidate);

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

// A measured trial on its way into the history.
struct Finished {
  int task;
  TuningRecord record;
  int space;
  int64_t order;
  bool replayed = false;  // taken from the history
};

struct SearchDone {
  int task = 0, asked = 0;
  int64_t round = 0;  // of the task's search
  std::vector<Proposal> proposals;
  double seconds = 0;
  int64_t evaluated = 0;
};
using Event = std::variant<SearchDone, std::vector<MeasureOutcome>, absl::Status>;

// Seconds of a clock that only goes forwards.
double MonotonicSeconds();

}  // namespace diapason::tuning
