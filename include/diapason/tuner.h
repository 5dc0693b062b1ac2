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
#include "diapason/devices.h"
#include "diapason/launch.h"
#include "diapason/model.h"

namespace diapason::api {

struct TaskProgress {
  int id = 0;  // from 1
  std::string name;
  std::string workload;
  double count = 1;    // occurrences in the network with the best fusion so far
  int64_t trials = 0;  // including those in the history
  int64_t failed = 0;
  std::optional<double> best_us, fallback_us, gflops_per_s;
  double expected_us = 0;         // best_us, or the expected time of the fallback schedule while there is none
  bool verified = false;          // the best record was compared with the reference
  std::optional<int64_t> record;  // the best record; nothing: none
  std::string algorithm, sketch;  // of the best record: "winograd(4)", "winograd(4)/tile0"
  bool tuned = true;              // this run tunes it
};

// Where the time of a run went. The stages overlap, so that their sum may exceed the elapsed time.
struct StageTimes {
  double search_s = 0, train_s = 0;
  double build_s = 0, run_s = 0;  // sums over candidates
  int64_t rounds = 0, trainings = 0, verifications = 0, confirmations = 0;
  double candidates_per_s = 0;  // candidates evaluated per second of search
};

// The state of a run at one moment.
struct Progress {
  bool ended = false;  // the run has ended
  double elapsed_s = 0;
  int64_t trials = 0;          // of the tuned tasks, including those in the history before this run
  int64_t measured = 0;        // trials of this run
  int64_t failed = 0;          // failures among `trials`
  double trials_per_s = 0;     // of this run
  int64_t built = 0, run = 0;  // candidates of this run that were built, and that reached a device
  int task = 0;                // id of the most recent task; 0: none
  std::optional<int64_t> trial_limit;
  std::optional<double> time_limit_s;
  std::optional<double> time_left_s;
  std::optional<double> estimated_us;                   // latency of the network; nothing while a task has no time
  std::optional<double> estimated_fallback_us;          // the same with fallback schedules
  std::optional<double> tasks_us;                       // sum of the tasks' times; nothing while a task has none
  double expected_us = 0, expected_fallback_us = 0;     // the estimates, with expected times for tasks without a time
  int64_t candidates = 0;                               // evaluated by the search
  std::vector<std::pair<std::string, int64_t>> errors;  // of this run, by kind, the most frequent first
  StageTimes stages;
  std::vector<TaskProgress> tasks;
};

// The devices of a fleet (docs/fleet.md) that measure. All are of one target and one model.
struct FleetRequest {
  // No address: measure on this host; `launch` is then without an engine, and the other members are ignored.
  Endpoint tracker;
  std::string device;                         // model; empty: the only model of the target in the fleet
  std::map<std::string, std::string> labels;  // labels that the workers must have
  int priority = 0;                           // higher priorities are measured first
  double weight = 1;                          // share of the devices among tuners of the same priority
  // For a device, and (60 at most) for the tracker. Launched workers may wait longer for their turn in the queue of the
  // cluster.
  double wait_seconds = 60;
  // Workers to start for the run, once the model was read; the next run of the same history finds again what a killed
  // process left behind. When all are lost and nobody else measures, the run stops.
  LaunchRequest launch;
};

// Measurements of a run without a limit, including those in the history.
inline constexpr int64_t kDefaultTrials = 1000;

struct TuneOptions {
  Model model;
  std::string target;
  std::string history;  // created if it does not exist
  // Tuning stops at the first limit. `trials` includes those in the history; 0: kDefaultTrials, or no limit with
  // `seconds`.
  int64_t trials = 0;
  double seconds = 0;      // includes verification; 0: no limit
  std::vector<int> tasks;  // tune only these, by id; empty: all
  // Stop early. Below 1: the least improvement, as a fraction, expected of the next tenth of the trials; from 1 on: a
  // number of trials without improvement; 0: never.
  double early_stop = 0;
  // Quantity to minimize: "sum" is the estimated latency; "targets:NETWORK=5ms" stops tuning a network below this.
  std::string objective = "sum";
  std::vector<std::string> size_weights;  // weights of sizes of model.dims: "seq=128:5"; 1 for all others
  int64_t trials_per_round = 64;          // of one task, before the next task is chosen
  // Algorithms to exclude from the search: "attention", "gemm", "halves", "padded", "rows", "strassen",
  // "winograd".
  std::vector<std::string> without;
  bool cold_start = false;  // do not start from the best configurations of similar tasks
  uint64_t seed = 0;
  bool shipped_records = true;  // start from the records that come with Diapason
  bool deterministic = false;   // one round after the other: the same seed and measurements give the same proposals
  int repeat = 3;               // samples per trial
  int64_t number = 1;           // least number of launches per sample
  double min_repeat_ms = -1;    // least length of a sample; below 0: 20, or 100 without `race`
  bool race = true;             // stop candidates early that are clearly slower than the best
  double build_timeout_seconds = 30, run_timeout_seconds = 10;  // for one candidate
  // Of the processes on this host; workers of a fleet have their own.
  int builders = 0;                           // number that compile; 0: depends on cores and memory
  std::string sandbox = "auto";               // "auto", "on", "off": whether bubblewrap isolates them
  std::vector<std::string> keep_environment;  // variables to pass besides those that compilers and drivers need
  FleetRequest fleet;
  bool check = true;           // compare the assembled network with the reference implementation at the end
  bool count_workers = false;  // fill in TuneResult::workers
  // Name of the run in the history: a deterministic run resumes an earlier one of the same name. Empty: derived from
  // the other options.
  std::string name;
  // Called once, on the thread that called Tune, after the model was read, the options were validated and the history
  // was opened, and before devices are acquired. An error ends the call. May be empty.
  std::function<absl::Status()> on_start;
  // Called about ten times a second and whenever the task changes, on the thread that called Tune. Must return quickly.
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
  std::vector<Alternative> alternatives;  // those that were tuned, the default first
  std::string best;
};

// How busy the workers were; of a fleet: all its workers, since they started.
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
  std::string stop_reason;  // as text: "time limit reached"
  bool cancelled = false;   // hooks.stop became true; the same call resumes from the measurements in the history
  std::vector<FusionChoice> fusion_choices;  // choice points at which an alternative to the default fusion is best
  std::vector<ChoicePoint> choice_points;
  std::vector<NetworkCheck> checks;   // by plan; empty: not checked
  std::optional<WorkerLoad> workers;  // nothing: not requested, or not known
  // Spread of the samples of a typical trial: largest minus smallest, relative to the median. More than 0.2 indicates
  // that the machine was busy. 0: not known.
  double spread = 0;
  // OK; DataLoss if the tuned network is wrong; else why it could not be checked: Unavailable if no launched worker was
  // left. The records are in the history in any case.
  absl::Status check_status;
};

// What Tune and Service::Submit check before anything else. InvalidArgument names the option that is wrong. Does not
// check whether the model, its tasks and the device exist.
absl::Status CheckOptions(const TuneOptions& options);

// Tunes on a device of this host or a fleet. Returns at the limits, or soon after *hooks.stop has become true. Every
// measurement is stored at once. InvalidArgument and NotFound refer to the model, the target or an option; Unavailable:
// there is no such device, or the tracker does not answer; Cancelled: hooks.stop became true while the model was read;
// other errors are those of the history (full disk).
absl::StatusOr<TuneResult> Tune(const TuneOptions& options);

}  // namespace diapason::api
