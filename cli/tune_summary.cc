#include "cli/tune_summary.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "diapason/history.h"

namespace diapason {
namespace {

constexpr double kBusySpread = 0.2;
// Below it a network may well be: on GPUs kernels wait for each other, which the times of tasks do not include.
constexpr double kOtherSpeed = 1.3;
constexpr double kReserve = 1.2;  // of what is suggested, since tasks differ

// So much more than was given that all tasks would have had a turn, rounded up to a multiple of ten.
int64_t Suggested(double given, int64_t tasks, int64_t timed) {
  const double factor = static_cast<double>(tasks) / static_cast<double>(std::max<int64_t>(timed, 1));
  return static_cast<int64_t>(std::ceil(given * factor * kReserve / 10)) * 10;
}

std::string HowToTimeAll(const api::Progress& progress, int64_t tasks, int64_t timed) {
  if (progress.time_limit_s.has_value())
    return absl::StrCat("use --seconds ", Suggested(*progress.time_limit_s, tasks, timed), " or more");
  const int64_t trials = std::max(Suggested(static_cast<double>(progress.trials), tasks, timed), tasks);
  return absl::StrCat("use --trials ", trials, " or more");
}

// That the network takes much longer than its tasks did, which were timed earlier. (Networks with parallel paths may
// take much less; where records were wrong, the tasks' times are those of others.)
std::string SpeedDoubt(const api::TuneResult& result) {
  const std::optional<double>& tasks_us = result.progress.tasks_us;
  if (result.checks.size() != 1 || tasks_us.value_or(0) <= 0) return "";
  const api::NetworkCheck& check = result.checks.front();
  if (!check.latency_us.has_value() || !check.wrong_records.empty()) return "";
  const double ratio = *check.latency_us / *tasks_us;
  if (ratio < kOtherSpeed) return "";
  return absl::StrFormat(
      "the network takes %.2f times as long as its tasks together: the machine was probably faster when these were "
      "timed; end other programs and tune again",
      ratio);
}

}  // namespace

std::string BuildCommand(const TuneFlags& flags) {
  return absl::StrCat("diapason build ", ModelArguments(flags.model), " --target ", ShellQuoted(flags.target),
                      " --history ", ShellQuoted(api::HistoryName(flags.history)), " --out package");
}

std::vector<std::string> TuneDoubts(const api::TuneResult& result, const std::string& target) {
  std::vector<std::string> doubts;
  int64_t tasks = 0, timed = 0, failing = 0;
  for (const api::TaskProgress& task : result.progress.tasks) {
    if (!task.tuned || task.count == 0) continue;
    ++tasks;
    if (task.best_us.has_value()) ++timed;
    if (!task.best_us.has_value() && task.trials > 0) ++failing;
  }
  if (const int64_t untimed = tasks - timed - failing; untimed > 0)
    doubts.push_back(absl::StrCat(untimed, " of ", Count(tasks, "task"), untimed == 1 ? " was" : " were",
                                  " not timed, and a build uses ",
                                  untimed == 1 ? "its fallback schedule" : "their fallback schedules", ": ",
                                  HowToTimeAll(result.progress, tasks, timed)));
  if (failing > 0)
    doubts.push_back(absl::StrCat("all trials of ", failing, " of ", Count(tasks, "task"),
                                  " failed; `diapason history info` counts the errors"));
  if (result.spread > kBusySpread)
    doubts.push_back(
        absl::StrFormat("the machine was busy: the timings of a typical trial spread by %.0f%%; end other programs and "
                        "tune again, or measure "
                        "longer with --min-repeat-ms",
                        100 * result.spread));
  const bool of_network = !absl::StrContains(target, " -caches=") || absl::StrContains(target, " -caches=network");
  if (const std::string speed = SpeedDoubt(result); of_network && !speed.empty()) doubts.push_back(speed);
  return doubts;
}

}  // namespace diapason
