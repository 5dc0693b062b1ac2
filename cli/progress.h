// What `tune` shows while it runs: a view that is redrawn in place on a terminal, lines elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace diapason {

// The state of a run at one moment.
struct ProgressSnapshot {
  struct Task {
    int64_t id = 0;
    std::string name;
    double weight = 1, flops = 0;
    int64_t trials = 0;
    std::optional<double> best_seconds;  // nothing: no measurement succeeded yet
    bool tuned = true;                   // in this run; others count but are not shown
    double seconds() const { return weight * best_seconds.value_or(0); }
  };
  double elapsed_s = 0;
  int64_t trials = 0, failed = 0;  // those of earlier runs in the same history included
  int64_t measured = 0;            // trials of this run
  std::optional<int64_t> trial_limit;
  std::optional<double> seconds_limit;
  int64_t searched = 0, built = 0, run = 0;             // candidates of this run through each stage
  std::vector<std::pair<std::string, int64_t>> errors;  // of this run by name of the kind
  std::vector<Task> tasks;
  int64_t current_task = 0;             // id of the task that was worked on last; 0: none
  std::optional<double> total_seconds;  // best-so-far estimate of the network; nothing until each task has a time
};

// Seconds until the first limit is reached, at the rate so far; nothing while that is not known.
std::optional<double> SecondsLeft(const ProgressSnapshot& snapshot);

// One thread at a time.
class ProgressView {
 public:
  // `live`: redraw in place with ANSI sequences, fitted into `size` (columns, rows); else a line now and then.
  ProgressView(std::ostream& out, bool live, std::function<std::pair<int, int>()> size);
  // Shows the state. Live views are drawn at most every 0.2 s of the run's time, lines are printed at most every 5 s.
  void Update(const ProgressSnapshot& snapshot);
  // Shows the last state, whatever the time, and leaves it on the screen.
  void Finish(const ProgressSnapshot& snapshot);

 private:
  void Draw(const ProgressSnapshot& snapshot);
  void PrintLine(const ProgressSnapshot& snapshot);
  void NoteRates(const ProgressSnapshot& snapshot);

  std::ostream& out_;
  const bool live_;
  const std::function<std::pair<int, int>()> size_;
  int drawn_lines_ = 0;
  std::optional<double> last_shown_s_;
  // Rates a second over the last seconds of the run, not since its start.
  struct Point {
    double at_s;
    int64_t searched, built, run;
  };
  std::vector<Point> points_;
  double search_rate_ = 0, build_rate_ = 0, run_rate_ = 0;
};

}  // namespace diapason
