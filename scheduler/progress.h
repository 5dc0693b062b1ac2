// What a tuning run reports while it runs and at its end. Plain data: the command line renders it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "db/history.h"

namespace diapason {

struct TaskReport {
  int id = 0;  // position in the list of tasks
  std::string name;
  double weight = 1;   // times it runs with the best fusion of each network so far
  int64_t trials = 0;  // of the history's too
  int64_t failed = 0;  // of these; those whose result was wrong included
  int64_t in_flight = 0;
  // Microseconds. The best is one that is verified, or, marked by `verified`, the best that is not refuted.
  std::optional<double> best_us, fallback_us;
  // The best, or what is expected of the fallback schedule while nothing of the task is timed: the analytic estimate,
  // scaled by how far it was off for the fallback schedules that are.
  double expected_us = 0;
  std::optional<double> gflops_per_s;  // of the best, 1e9 floating point operations a second
  bool verified = false;
  int64_t best_record = 0;      // its id in the history; 0: none
  std::string rewrite, sketch;  // of the best: "winograd(4)" and "winograd(4)/tile0", "library" and "library/cudnn"
  bool selected = true;         // tuned in this run
  bool done = false;            // gets no more trials
};

// Where the time went. The stages overlap: their sum may exceed the run's seconds.
struct StageReport {
  double search_s = 0;
  double build_s = 0, run_s = 0;  // sums over candidates, of all builders and devices
  double train_s = 0;
  int64_t candidates = 0;       // that the search evaluated
  double candidates_per_s = 0;  // of search_s
  int64_t rounds = 0, trainings = 0, verifications = 0, confirmations = 0;
};

struct TuneReport {
  int64_t trials = 0;    // of the tuned tasks, those in the history before this run included
  int64_t measured = 0;  // by this run
  int64_t failed = 0;    // of `trials`
  double seconds = 0;
  double trials_per_s = 0;  // measured by this run
  int64_t in_flight = 0;
  // Sum of weight times best, of all tasks; nothing while one has no result.
  std::optional<double> tasks_us;
  // The same, corrected by what the network took from end to end when that was last measured (History::Latency).
  std::optional<double> estimated_us;
  std::optional<double> estimated_fallback_us;  // with the default fusion
  // As estimated_us, with what is expected of tasks that have no result; known from the start.
  double expected_us = 0;
  double expected_fallback_us = 0;
  std::vector<int> alternatives;  // by TunerOptions::choices: the best so far
  std::vector<TaskReport> tasks;
  StageReport stages;
  std::vector<std::pair<std::string, int64_t>> errors;  // of this run by name of the kind, most frequent first
  std::optional<double> seconds_left;                   // by trials or by time, whichever comes first
  std::string stopped;                                  // at the end: why
};

// Called from the thread that runs the tuner, between its steps: must not take long.
class ProgressListener {
 public:
  virtual ~ProgressListener() = default;
  virtual void OnStart(const TuneReport& report) {}
  // A round was proposed for a task and handed to the measurer.
  virtual void OnRound(int task, int candidates, const TuneReport& report) {}
  // A measurement was stored in the history; `best`: it is the fastest of its task so far.
  virtual void OnRecord(int task, const TuningRecord& record, bool best, const TuneReport& report) {}
  // A record's result was compared with the reference implementation.
  virtual void OnVerified(int task, int64_t record, bool ok, const std::string& text) {}
  // Something that does not end the run: one sentence.
  virtual void OnWarning(const std::string& text) {}
  // About ten times a second, for a live view.
  virtual void OnTick(const TuneReport& report) {}
  virtual void OnFinish(const TuneReport& report) {}
};

}  // namespace diapason
