#include "cli/progress.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cli/table.h"

namespace diapason {
namespace {

constexpr double kLiveEvery = 0.2;
constexpr double kLineEvery = 5;
constexpr double kRateWindow = 10;  // seconds that rates are taken over
constexpr int kFixedLines = 6;      // of the live view, besides the table of tasks
constexpr char kBold[] = "1", kDim[] = "2", kRed[] = "31", kCyan[] = "36";

std::string RateText(double rate) { return rate > 0 ? Digits(rate) + "/s" : "-"; }

std::string TrialsText(const ProgressSnapshot& s) {
  std::string text = s.trial_limit.has_value() ? absl::StrCat(s.trials, "/", Count(*s.trial_limit, "trial"))
                                               : Count(s.trials, "trial");
  if (s.failed > 0) absl::StrAppend(&text, " (", s.failed, " failed)");
  return text;
}

// "19.10 ms (12 of 30 tasks timed)".
std::string TotalText(const ProgressSnapshot& s) {
  const auto counts = [](const auto& task) { return task.count > 0; };
  const auto all = std::count_if(s.tasks.begin(), s.tasks.end(), counts);
  const auto timed = std::count_if(s.tasks.begin(), s.tasks.end(),
                                   [&](const auto& task) { return counts(task) && task.best_seconds.has_value(); });
  return Duration(s.total_seconds) + (timed == all ? "" : absl::StrCat(" (", timed, " of ", all, " tasks timed)"));
}

std::string LeftText(const ProgressSnapshot& s) {
  const std::optional<double> left = SecondsLeft(s);
  return left.has_value() ? ClockText(*left) : "-";
}

std::string ErrorsText(const ProgressSnapshot& s) {
  if (s.errors.empty()) return "none";
  std::string text;
  for (const auto& [kind, count] : s.errors) absl::StrAppend(&text, text.empty() ? "" : ", ", kind, " ", count);
  return text;
}

// A bar of `width` cells.
std::string Bar(double part, int width) {
  const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * width + 0.5);
  std::string bar;
  for (int i = 0; i < width; ++i) bar += i < full ? "━" : "─";
  return bar;
}

double PartDone(const ProgressSnapshot& s) {
  double part = 0;
  if (s.trial_limit.value_or(0) > 0) part = static_cast<double>(s.trials) / static_cast<double>(*s.trial_limit);
  if (s.seconds_limit.value_or(0) > 0) part = std::max(part, s.elapsed_s / *s.seconds_limit);
  return part;
}

// Measured ones first, of each kind the largest share.
std::vector<const ProgressSnapshot::Task*> InOrder(const std::vector<ProgressSnapshot::Task>& all) {
  std::vector<const ProgressSnapshot::Task*> tasks;
  for (const auto& task : all)
    if (task.tuned) tasks.push_back(&task);
  std::stable_sort(tasks.begin(), tasks.end(), [](const auto* a, const auto* b) {
    if (a->best_seconds.has_value() != b->best_seconds.has_value()) return a->best_seconds.has_value();
    return a->seconds() > b->seconds();
  });
  return tasks;
}

std::vector<std::string> Cells(const ProgressSnapshot::Task& task, bool marked, double total, bool schedules) {
  const bool timed = task.best_seconds.has_value();
  const double fallback = task.fallback_seconds.value_or(timed ? 0 : task.expected_seconds),
               best = task.best_seconds.value_or(0);
  const std::string about = task.fallback_seconds.has_value() || fallback <= 0 ? "" : "~";
  const bool gain = task.fallback_seconds.has_value() && best > 0;
  std::vector<std::string> cells = {
      marked ? ">" : "",
      absl::StrCat(task.id),
      task.name,
      absl::StrFormat("%g", task.count),
      fallback > 0 ? about + Digits(fallback * 1e6) : "",
      timed ? Digits(best * 1e6) : "",
      gain ? absl::StrFormat("%.2fx", *task.fallback_seconds / best) : "",
      absl::StrCat(task.trials),
      total > 0 ? absl::StrFormat("%s%.1f%%", timed ? "" : "~", 100 * task.seconds() / total) : ""};
  if (schedules) cells.push_back(task.schedule);
  return cells;
}

}  // namespace

std::optional<double> SecondsLeft(const ProgressSnapshot& s) {
  std::optional<double> left;
  if (s.seconds_limit.has_value()) left = std::max(0.0, *s.seconds_limit - s.elapsed_s);
  if (s.trial_limit.has_value() && s.measured > 0 && s.elapsed_s > 0) {
    const double each = s.elapsed_s / static_cast<double>(s.measured);
    const double by_trials = each * static_cast<double>(std::max<int64_t>(0, *s.trial_limit - s.trials));
    left = left.has_value() ? std::min(*left, by_trials) : by_trials;
  }
  return left;
}

ProgressTable TableOfTasks(const std::vector<ProgressSnapshot::Task>& tasks, int64_t marked, int width, size_t most) {
  std::vector<TextTable::Column> columns = {{""},
                                            {"id", true},
                                            {"task"},
                                            {"count", true},
                                            {"fallback us", true},
                                            {"best us", true},
                                            {"speed-up", true},
                                            {"trials", true},
                                            {"share", true}};
  const bool schedules =
      std::any_of(tasks.begin(), tasks.end(), [](const auto& task) { return !task.schedule.empty(); });
  if (schedules) columns.push_back({"schedule"});
  TextTable table(columns);
  const double total =
      std::accumulate(tasks.begin(), tasks.end(), 0.0, [](double sum, const auto& t) { return sum + t.seconds(); });
  const std::vector<const ProgressSnapshot::Task*> all = InOrder(tasks);
  ProgressTable made;
  made.measured.push_back(true);  // the title
  for (size_t i = 0; i < std::min(most, all.size()); ++i) {
    if (marked > 0 && all[i]->id == marked) made.marked = static_cast<int>(i) + 1;
    made.measured.push_back(all[i]->best_seconds.has_value());
    table.AddRow(Cells(*all[i], marked > 0 && all[i]->id == marked, total, schedules));
  }
  made.lines = absl::StrSplit(table.ToString(width), '\n', absl::SkipEmpty());
  if (all.size() > most) {
    const std::string more =
        absl::StrCat("   ... and ", Count(static_cast<int64_t>(all.size() - most), "task"), " more");
    made.lines.push_back(width > 0 ? Cut(more, width) : more);
    made.measured.push_back(false);
  }
  return made;
}

void ProgressView::NoteRates(const ProgressSnapshot& s) {
  points_.push_back({s.elapsed_s, s.searched, s.built, s.run});
  while (points_.size() > 2 && points_[1].at_s < s.elapsed_s - kRateWindow) points_.erase(points_.begin());
  const Point& first = points_.front();
  const double seconds = s.elapsed_s - first.at_s;
  if (seconds <= 0) return;
  search_rate_ = static_cast<double>(s.searched - first.searched) / seconds;
  build_rate_ = static_cast<double>(s.built - first.built) / seconds;
  run_rate_ = static_cast<double>(s.run - first.run) / seconds;
}

void ProgressView::Update(const ProgressSnapshot& snapshot) {
  if (last_shown_s_.has_value() && snapshot.elapsed_s < *last_shown_s_ + (style_.live ? kLiveEvery : kLineEvery))
    return;
  last_shown_s_ = snapshot.elapsed_s;
  NoteRates(snapshot);
  style_.live ? Draw(snapshot) : PrintLine(snapshot);
}

void ProgressView::Finish(const ProgressSnapshot& snapshot) {
  NoteRates(snapshot);
  style_.live ? Draw(snapshot) : PrintLine(snapshot);
  drawn_lines_ = 0;
}

void ProgressView::PrintLine(const ProgressSnapshot& s) {
  out_ << "[" << ClockText(s.elapsed_s) << "] " << TrialsText(s) << ", search " << RateText(search_rate_) << ", builds "
       << RateText(build_rate_) << ", runs " << RateText(run_rate_) << ", estimate " << TotalText(s);
  if (!s.errors.empty()) out_ << ", errors: " << ErrorsText(s);
  out_ << ", left " << LeftText(s) << "\n" << std::flush;
}

void ProgressView::Draw(const ProgressSnapshot& s) {
  const auto [columns, rows] = style_.size ? style_.size() : std::pair<int, int>{80, 24};
  const int width = std::max(20, columns - 1);  // a full last column would wrap on some terminals
  const size_t most = static_cast<size_t>(std::max(1, rows - kFixedLines - 2));
  std::vector<std::string> lines;
  const auto line = [&](const std::string& content, const char* colour = nullptr) {
    const std::string text = Cut(content, width);
    lines.push_back(colour != nullptr && style_.colour ? absl::StrCat("\x1b[", colour, "m", text, "\x1b[0m") : text);
  };
  if (!style_.title.empty()) line("tuning " + style_.title, kBold);
  line(absl::StrCat(Bar(PartDone(s), std::max(8, std::min(40, width - 50))), " ", TrialsText(s), "  elapsed ",
                    ClockText(s.elapsed_s), "  left ", LeftText(s)));
  line(absl::StrCat("search ", RateText(search_rate_), "  builds ", RateText(build_rate_), "  runs ",
                    RateText(run_rate_)));
  const ProgressTable table = TableOfTasks(s.tasks, s.current_task, width, most);
  for (size_t i = 0; i < table.lines.size(); ++i)
    line(table.lines[i], static_cast<int>(i) == table.marked ? kCyan
                         : i == 0                            ? kBold
                         : table.measured[i]                 ? nullptr
                                                             : kDim);
  line("estimated latency " + TotalText(s), kBold);
  line("errors " + ErrorsText(s), s.errors.empty() ? nullptr : kRed);

  std::string frame;
  if (drawn_lines_ > 0) absl::StrAppend(&frame, "\x1b[", drawn_lines_, "A");
  drawn_lines_ = static_cast<int>(lines.size());
  // Behind each line, what a longer one left; behind the last, lines below.
  for (const std::string& text : lines) absl::StrAppend(&frame, text, "\x1b[K\n");
  out_ << frame << "\x1b[J" << std::flush;
}

}  // namespace diapason
