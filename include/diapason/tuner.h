// Tuning on this host's devices. See model.h. Fleets and services are used by the command line (`diapason tune
// --tracker`, `submit`).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/compiler.h"
#include "diapason/model.h"

namespace diapason::api {

struct TaskProgress {
  int id = 0;  // from 1
  std::string name;
  std::string workload;
  double count = 1;    // times it runs with the best fusion so far
  int64_t trials = 0;  // of the history's too
  int64_t failed = 0;
  std::optional<double> best_us, fallback_us, gflops_per_s;
  bool verified = false;          // the best is
  std::optional<int64_t> record;  // the best; nothing: none
  std::string sketch;             // of the best
  bool tuned = true;              // in this run
};

// The state of a run at one moment.
struct Progress {
  double elapsed_s = 0;
  int64_t trials = 0;    // of the tuned tasks, those in the history before this run included
  int64_t measured = 0;  // by this run
  int64_t failed = 0;    // of `trials`
  std::optional<int64_t> trial_limit;
  std::optional<double> time_limit_s;
  std::optional<double> time_left_s;
  std::optional<double> estimated_us;                   // of the network; nothing while a task has no time
  std::optional<double> estimated_fallback_us;          // with fallback schedules
  int64_t candidates = 0;                               // that the search evaluated
  std::vector<std::pair<std::string, int64_t>> errors;  // of this run, by kind
  std::vector<TaskProgress> tasks;
};

struct TuneOptions {
  Model model;
  std::string target;
  std::string history;     // made when there is none
  int64_t trials = 0;      // in all, those in the history included; 0: 1000, or no limit with `seconds`
  double seconds = 0;      // verification of the best included; 0: no limit. What comes first ends the run
  std::vector<int> tasks;  // only these, by id; empty: all
  // end when little is left to gain: a share such as 0.01, or a number of trials without a gain; 0: never
  double early_stop = 0;
  uint64_t seed = 0;
  bool shipped_records = true;  // begin with the records that come with Diapason
  bool deterministic = false;   // the same proposals for the same seed and measurements; slower
  int repeat = 3;               // samples of a trial
  double min_repeat_ms = -1;    // length of a sample, at least; below 0: 20
  double build_timeout_seconds = 30, run_timeout_seconds = 10;  // of a candidate
  int builders = 0;                                             // processes that compile; 0: as the machine allows
  std::string sandbox = "auto";                                 // for these processes: "auto", "on", "off"
  bool check = true;  // compare the assembled network with the reference implementation at the end
  // About ten times a second, from the thread that called Tune: must not take long. May be empty.
  std::function<void(const Progress&)> progress;
  Hooks hooks;
};

struct TuneResult {
  Progress progress;        // at the end
  std::string stop_reason;  // why it ended
  bool cancelled = false;   // by hooks.stop: what was measured is in the history, the same call resumes there
  std::vector<FusionChoice> fusion_choices;  // where another alternative than the default fusion was best
  std::vector<NetworkCheck> checks;          // by plan; empty: none was made
  // OK, or what is wrong with the tuned network (DataLoss), or why it could not be checked. The records are in the
  // history all the same.
  absl::Status check_status;
};

// Tunes on a device of this host, and returns at the limits or soon after *hooks.stop has become true. Every
// measurement is in the history at once. Errors: of the model, the target, an option; Unavailable: there is no such
// device; of the history (full disk); Cancelled: by hooks.stop while the model was read.
absl::StatusOr<TuneResult> Tune(const TuneOptions& options);

}  // namespace diapason::api
