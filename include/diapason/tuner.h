// Tuning, on this host's devices or on a fleet's. See model.h. service.h hands the same to a service.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
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
  double expected_us = 0;         // the best, or what is expected of the fallback schedule
  bool verified = false;          // the best is
  std::optional<int64_t> record;  // the best; nothing: none
  std::string algorithm, sketch;  // of the best: "winograd(4)", "winograd(4)/tile0"
  bool tuned = true;              // in this run
};

// Where the time of a run went. The stages overlap, so that their sum may exceed the elapsed time.
struct StageTimes {
  double search_s = 0, train_s = 0;
  double build_s = 0, run_s = 0;  // sums over candidates
  int64_t rounds = 0, trainings = 0, verifications = 0, confirmations = 0;
  double candidates_per_s = 0;  // evaluated in a second of search
};

// The state of a run at one moment.
struct Progress {
  bool ended = false;  // the last one of a run
  double elapsed_s = 0;
  int64_t trials = 0;          // of the tuned tasks, those in the history before this run included
  int64_t measured = 0;        // by this run
  int64_t failed = 0;          // of `trials`
  double trials_per_s = 0;     // measured by this run
  int64_t built = 0, run = 0;  // candidates of this run whose build has ended, and that came to a device
  int task = 0;                // that was worked on last, by id; 0: none
  std::optional<int64_t> trial_limit;
  std::optional<double> time_limit_s;
  std::optional<double> time_left_s;
  std::optional<double> estimated_us;                   // of the network; nothing while a task has no time
  std::optional<double> estimated_fallback_us;          // with fallback schedules
  std::optional<double> tasks_us;                       // the sum of the tasks' times; nothing while one has none
  double expected_us = 0, expected_fallback_us = 0;     // the estimates, with what is expected of tasks without a time
  int64_t candidates = 0;                               // that the search evaluated
  std::vector<std::pair<std::string, int64_t>> errors;  // of this run, by kind, the most frequent first
  StageTimes stages;
  std::vector<TaskProgress> tasks;
};

// Whose devices measure: those of a fleet (docs/fleet.md) of one target and one model.
struct FleetRequest {
  Endpoint tracker;                           // no address: the devices of this host, and the rest has no meaning
  std::string device;                         // their model; empty: the one that the fleet has of the target
  std::map<std::string, std::string> labels;  // that their workers must carry
  int priority = 0;                           // who has a higher one is measured first
  double weight = 1;                          // share among those of one priority
  double wait_seconds = 60;                   // for a device, and for the tracker, for which it is 60 at most
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
  // What to make small: "sum", or "targets:NETWORK=5ms", which gains nothing below a network's target.
  std::string objective = "sum";
  std::vector<std::string> size_weights;  // how much a size of model.dims counts: "seq=128:5"; the others count 1
  int64_t trials_per_round = 64;          // of a task, between choices of tasks
  // Algorithms to leave out of the search: "attention", "gemm", "rows", "strassen", "winograd".
  std::vector<std::string> without;
  bool cold_start = false;  // begin without what similar tasks of the network and the history found best
  uint64_t seed = 0;
  bool shipped_records = true;  // begin with the records that come with Diapason
  bool deterministic = false;   // the same proposals for the same seed and measurements; slower
  int repeat = 3;               // samples of a trial
  int64_t number = 1;           // launches of a sample, at least
  double min_repeat_ms = -1;    // length of a sample, at least; below 0: 20, or 100 without `race`
  bool race = true;             // stop candidates early that are clearly slower than the best
  bool flush_l2 = false;        // start each launch with a cold last-level cache
  double build_timeout_seconds = 30, run_timeout_seconds = 10;  // of a candidate
  // Of this host's processes; those of a fleet have their own.
  int builders = 0;                           // that compile; 0: as the machine allows
  std::string sandbox = "auto";               // "auto", "on", "off"
  std::vector<std::string> keep_environment;  // variables that they get besides those that compilers and drivers need
  FleetRequest fleet;
  bool check = true;           // compare the assembled network with the reference implementation at the end
  bool count_workers = false;  // ask at the end how busy the workers were
  // What the history knows the run by: a deterministic run resumes an earlier one of the same name. Empty: made of the
  // other options.
  std::string name;
  // Called once, from the thread that called Tune, when the model was read, the options were found right and the
  // history is open: devices are taken next. An error ends the call. May be empty.
  std::function<absl::Status()> on_start;
  // About ten times a second and when another task is turned to, from the thread that called Tune: must not take long.
  // May be empty.
  std::function<void(const Progress&)> progress;
  Hooks hooks;
};

// A place where the network can be fused in several ways.
struct ChoicePoint {
  struct Alternative {
    std::string name;
    std::vector<int> tasks;  // ids
  };
  std::string name;
  std::vector<Alternative> alternatives;  // that were tuned, the default first
  std::string best;
};

// How busy the workers were, of a fleet all of them and since they started.
struct WorkerLoad {
  int builders = 0, devices = 0;
  int64_t builds = 0, runs = 0, runs_stopped_early = 0, builder_restarts = 0, runner_restarts = 0;
  double builds_per_s = 0, runs_per_s = 0;
  double builder_utilisation = 0, runner_utilisation = 0;  // 0 to 1, on average
  std::vector<std::pair<std::string, double>>
      run_phases;  // seconds of runs by phase, in order: "load_s", "fill_s", ...
};

struct TuneResult {
  Progress progress;        // at the end
  std::string stop_reason;  // why it ended
  bool cancelled = false;   // by hooks.stop: what was measured is in the history, the same call resumes there
  std::vector<FusionChoice> fusion_choices;  // where another alternative than the default fusion was best
  std::vector<ChoicePoint> choice_points;
  std::vector<NetworkCheck> checks;   // by plan; empty: none was made
  std::optional<WorkerLoad> workers;  // nothing: not asked for, or not known
  // By how much the samples of a typical trial lie apart: the largest less the smallest, over the median. Above some
  // 0.2 the machine was busy. 0: not known.
  double spread = 0;
  // OK, or what is wrong with the tuned network (DataLoss), or why it could not be checked. The records are in the
  // history all the same.
  absl::Status check_status;
};

// What Tune and Service::Submit say of options that are wrong, before they do anything. InvalidArgument names the
// option. Whether the model, its tasks and the device are there is not asked.
absl::Status CheckOptions(const TuneOptions& options);

// Tunes on a device of this host or a fleet, and returns at the limits or soon after *hooks.stop has become true. Every
// measurement is in the history at once. Errors: of the model, the target, an option; Unavailable: there is no such
// device, or the tracker does not answer; of the history (full disk); Cancelled: by hooks.stop while the model was
// read.
absl::StatusOr<TuneResult> Tune(const TuneOptions& options);

// A device of this host on which a target is measured.
struct LocalDevice {
  std::string target;  // with all that its kernels depend on
  std::string title;   // for people: "AMD EPYC, AVX-512"
};
// InvalidArgument: the target does not parse, or names what this host has not; Unavailable: there is no such device.
absl::StatusOr<LocalDevice> FindDevice(const std::string& target);

}  // namespace diapason::api
