// Progress of `tune`: a view that is redrawn in place on a terminal, and lines elsewhere.
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
    double count = 1;  // occurrences in the network
    int64_t trials = 0;
    std::optional<double> best_seconds;      // nothing: no measurement has succeeded yet
    std::optional<double> fallback_seconds;  // time of the fallback schedule; nothing: not measured yet
    double expected_seconds = 0;             // best_seconds, or the expected time of the fallback schedule
    std::string schedule{};                  // of the best record, for the table at the end
    bool tuned = true;                       // false: part of the estimate, but not shown
    double seconds() const { return count * best_seconds.value_or(expected_seconds); }
  };
  double elapsed_s = 0;
  int64_t trials = 0, failed = 0;  // including earlier runs in the same history
  int64_t measured = 0;            // trials of this run
  std::optional<int64_t> trial_limit;
  std::optional<double> seconds_limit;
  int64_t searched = 0, built = 0, run = 0;             // candidates of this run that have passed each stage
  std::vector<std::pair<std::string, int64_t>> errors;  // of this run, by name of the error kind
  std::vector<Task> tasks;
  int64_t current_task = 0;  // id of the most recent task; 0: none
  // Estimated latency of the network, with expected times for tasks that were not measured; 0: not known.
  double total_seconds = 0;
};

// Appearance of a view.
struct ProgressStyle {
  std::string title;                          // "resnet-18 for cpu -num-cores=2"
  bool live = false;                          // redrawn in place with ANSI sequences; else a line every 5 s
  bool colour = false;                        // colour live views
  std::function<std::pair<int, int>()> size;  // columns and rows of the terminal; empty: 80 by 24
};

// A table of tasks.
struct ProgressTable {
  std::vector<std::string> lines;  // including the titles
  std::vector<bool> measured;      // by line: the task has a measurement
  int marked = -1;                 // index of the marked line; -1: none
};
// At most `most` rows: measured tasks by their share of the network's latency, then the others by their expected time,
// then a line with the number of omitted tasks. `marked`: id of the task to mark; 0: none. No line is wider than
// `width` (0: no limit). There is a column for schedules if tasks have any.
ProgressTable TableOfTasks(const std::vector<ProgressSnapshot::Task>& tasks, int64_t marked, int width, size_t most);

// Estimated seconds until the first limit is reached, at the rate so far; nothing: unknown.
std::optional<double> SecondsLeft(const ProgressSnapshot& snapshot);

// Not thread-safe.
class ProgressView {
 public:
  ProgressView(std::ostream& out, ProgressStyle style) : out_(out), style_(std::move(style)) {}
  // Shows the state. Live views are drawn at most every 0.2 s of the run's time, lines are printed at most every 5 s.
  void Update(const ProgressSnapshot& snapshot);
  // Shows the final state at once, and leaves it on the screen.
  void Finish(const ProgressSnapshot& snapshot);

 private:
  void Draw(const ProgressSnapshot& snapshot);
  void PrintLine(const ProgressSnapshot& snapshot);
  void NoteRates(const ProgressSnapshot& snapshot);

  std::ostream& out_;
  const ProgressStyle style_;
  int drawn_lines_ = 0;
  std::optional<double> last_shown_s_;
  // For rates per second over the last seconds of the run.
  struct Point {
    double at_s;
    int64_t searched, built, run;
  };
  std::vector<Point> points_;
  double search_rate_ = 0, build_rate_ = 0, run_rate_ = 0;
};

}  // namespace diapason
