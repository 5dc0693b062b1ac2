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
    double count = 1;  // occurrences in the network
    int64_t trials = 0;
    std::optional<double> best_seconds;      // nothing: no measurement succeeded yet
    std::optional<double> fallback_seconds;  // of the fallback schedule; likewise
    double expected_seconds = 0;             // the best, or what is expected of the fallback schedule
    std::string schedule{};                  // of the best, for the table at the end
    bool tuned = true;                       // in this run; others count but are not shown
    double seconds() const { return count * best_seconds.value_or(expected_seconds); }
  };
  double elapsed_s = 0;
  int64_t trials = 0, failed = 0;  // those of earlier runs in the same history included
  int64_t measured = 0;            // trials of this run
  std::optional<int64_t> trial_limit;
  std::optional<double> seconds_limit;
  int64_t searched = 0, built = 0, run = 0;             // candidates of this run through each stage
  std::vector<std::pair<std::string, int64_t>> errors;  // of this run by name of the kind
  std::vector<Task> tasks;
  int64_t current_task = 0;  // id of the task that was worked on last; 0: none
  // best-so-far estimate of the network, with expected times where there are no others; 0: not known
  double total_seconds = 0;
};

// Where and how a view is shown.
struct ProgressStyle {
  std::string title;                          // "resnet-18 for cpu -num-cores=2"
  bool live = false;                          // redrawn in place with ANSI sequences; else a line now and then
  bool colour = false;                        // of live views
  std::function<std::pair<int, int>()> size;  // columns and rows of the terminal; empty: 80 by 24
};

// The table of tasks, at most `most` rows: measured ones by their share of the network's latency, then the others by
// what is expected of them; last a line that says how many are left out. `marked`: id of the one that is worked on; 0:
// none. None wider than `width` (0: as wide as needed). Tasks that have a schedule get a column for it.
struct ProgressTable {
  std::vector<std::string> lines;  // with the title
  std::vector<bool> measured;      // by line
  int marked = -1;                 // line
};
ProgressTable TableOfTasks(const std::vector<ProgressSnapshot::Task>& tasks, int64_t marked, int width, size_t most);

// Seconds until the first limit is reached, at the rate so far; nothing while that is not known.
std::optional<double> SecondsLeft(const ProgressSnapshot& snapshot);

// One thread at a time.
class ProgressView {
 public:
  ProgressView(std::ostream& out, ProgressStyle style) : out_(out), style_(std::move(style)) {}
  // Shows the state. Live views are drawn at most every 0.2 s of the run's time, lines are printed at most every 5 s.
  void Update(const ProgressSnapshot& snapshot);
  // Shows the last state, whatever the time, and leaves it on the screen.
  void Finish(const ProgressSnapshot& snapshot);

 private:
  void Draw(const ProgressSnapshot& snapshot);
  void PrintLine(const ProgressSnapshot& snapshot);
  void NoteRates(const ProgressSnapshot& snapshot);

  std::ostream& out_;
  const ProgressStyle style_;
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
