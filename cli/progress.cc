#include "cli/progress.h"

#include <algorithm>
#include <numeric>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/table.h"

namespace diapason {
namespace {

constexpr double kLiveEvery = 0.2;
constexpr double kLineEvery = 5;
constexpr double kRateWindow = 10;  // seconds that rates are taken over
constexpr int kFixedLines = 5;      // of the live view, besides the tasks

double TotalOf(const ProgressSnapshot& s) {
  return std::accumulate(s.tasks.begin(), s.tasks.end(), 0.0, [](double sum, const auto& t) { return sum + t.seconds(); });
}

std::string RateText(double rate) { return rate > 0 ? Digits(rate) + "/s" : "-"; }

std::string TrialsText(const ProgressSnapshot& s) {
  std::string text = absl::StrCat(s.trials);
  if (s.trial_limit.has_value()) absl::StrAppend(&text, "/", *s.trial_limit);
  absl::StrAppend(&text, " trials");
  if (s.failed > 0) absl::StrAppend(&text, " (", s.failed, " failed)");
  return text;
}

std::string TotalText(const ProgressSnapshot& s) {
  if (s.total_seconds.has_value()) return Duration(*s.total_seconds);
  const auto timed = std::count_if(s.tasks.begin(), s.tasks.end(), [](const auto& t) { return t.best_seconds.has_value(); });
  return absl::StrCat("- (", timed, " of ", s.tasks.size(), " tasks timed)");
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

std::vector<const ProgressSnapshot::Task*> Tuned(const ProgressSnapshot& s) {
  std::vector<const ProgressSnapshot::Task*> tasks;
  for (const auto& task : s.tasks) {
    if (task.tuned) tasks.push_back(&task);
  }
  return tasks;
}

// The tasks that matter most, by share of the total and those without a time first, in the order of their ids.
std::vector<const ProgressSnapshot::Task*> Shown(const ProgressSnapshot& s, size_t most) {
  std::vector<const ProgressSnapshot::Task*> tasks = Tuned(s);
  if (tasks.size() > most) {
    std::stable_sort(tasks.begin(), tasks.end(), [](const auto* a, const auto* b) {
      if (a->best_seconds.has_value() != b->best_seconds.has_value()) return !a->best_seconds.has_value();
      return a->seconds() > b->seconds();
    });
    tasks.resize(most);
    std::sort(tasks.begin(), tasks.end(), [](const auto* a, const auto* b) { return a->id < b->id; });
  }
  return tasks;
}

std::string TaskTable(const ProgressSnapshot& s, int width, size_t most) {
  TextTable table({{""}, {"id", true}, {"task"}, {"weight", true}, {"latency us", true}, {"GFLOP/s", true},
                   {"trials", true}, {"share", true}});
  const double total = TotalOf(s);
  const auto shown = Shown(s, most);
  for (const ProgressSnapshot::Task* task : shown) {
    const double best = task->best_seconds.value_or(0);
    table.AddRow({task->id == s.current_task ? ">" : "", absl::StrCat(task->id), task->name,
                  absl::StrFormat("%g", task->weight), Digits(best * 1e6), best > 0 ? Digits(task->flops / best / 1e9) : "-",
                  absl::StrCat(task->trials), best > 0 ? absl::StrFormat("%.1f%%", 100 * task->seconds() / total) : "-"});
  }
  std::string text = table.ToString(width);
  if (const size_t tuned = Tuned(s).size(); shown.size() < tuned) {
    absl::StrAppend(&text, Cut(absl::StrCat("   and ", Count(tuned - shown.size(), "task"), " of smaller share"), width), "\n");
  }
  return text;
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

ProgressView::ProgressView(std::ostream& out, bool live, std::function<std::pair<int, int>()> size)
    : out_(out), live_(live), size_(std::move(size)) {}

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
  if (last_shown_s_.has_value() && snapshot.elapsed_s < *last_shown_s_ + (live_ ? kLiveEvery : kLineEvery)) return;
  last_shown_s_ = snapshot.elapsed_s;
  NoteRates(snapshot);
  live_ ? Draw(snapshot) : PrintLine(snapshot);
}

void ProgressView::Finish(const ProgressSnapshot& snapshot) {
  NoteRates(snapshot);
  live_ ? Draw(snapshot) : PrintLine(snapshot);
  drawn_lines_ = 0;
}

void ProgressView::PrintLine(const ProgressSnapshot& s) {
  out_ << "[" << ClockText(s.elapsed_s) << "] " << TrialsText(s) << ", search " << RateText(search_rate_) << ", builds "
       << RateText(build_rate_) << ", runs " << RateText(run_rate_) << ", estimate " << TotalText(s);
  if (!s.errors.empty()) out_ << ", errors: " << ErrorsText(s);
  out_ << ", left " << LeftText(s) << "\n" << std::flush;
}

void ProgressView::Draw(const ProgressSnapshot& s) {
  auto [columns, rows] = size_ ? size_() : std::pair<int, int>{80, 24};
  const int width = std::max(20, columns - 1);  // a full last column would wrap on some terminals
  const size_t most = static_cast<size_t>(std::max(1, rows - kFixedLines - 3));
  std::string text;
  auto line = [&](const std::string& content) { absl::StrAppend(&text, Cut(content, width), "\n"); };
  line(absl::StrCat(Bar(PartDone(s), std::max(8, std::min(40, width - 50))), " ", TrialsText(s), "  elapsed ",
                    ClockText(s.elapsed_s), "  left ", LeftText(s)));
  line(absl::StrCat("search ", RateText(search_rate_), "  builds ", RateText(build_rate_), "  runs ", RateText(run_rate_)));
  absl::StrAppend(&text, TaskTable(s, width, most));
  line(absl::StrCat("best total ", TotalText(s)));
  line(absl::StrCat("errors     ", ErrorsText(s)));

  std::string frame;
  if (drawn_lines_ > 0) absl::StrAppend(&frame, "\x1b[", drawn_lines_, "A");
  drawn_lines_ = static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  for (char c : text) {
    if (c == '\n') frame += "\x1b[K";  // clears what a longer line left behind
    frame += c;
  }
  out_ << frame << "\x1b[J" << std::flush;  // and lines below the last
}

}  // namespace diapason
