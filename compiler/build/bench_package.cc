#include "compiler/build/bench_package.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "compiler/runtime/measure.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than anything takes, and short enough to be divided by the length of a run.
constexpr double kNoLimit = 1e6;

absl::Status WarmUp(PackageRunner& runner, double seconds) {
  const auto until = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  do {
    RETURN_IF_ERROR(runner.Run());
  } while (Clock::now() < until);
  return absl::OkStatus();
}

// Samples of one run each, until both limits let it end.
absl::StatusOr<std::vector<double>> SingleRuns(PackageRunner& runner, double seconds, int64_t least) {
  TimingOptions single;
  single.min_repeat_ms = 0;
  single.max_seconds = seconds;
  single.repeat = std::numeric_limits<int>::max();
  ASSIGN_OR_RETURN(Timing timing, runner.Bench(single));
  const int64_t missing = least - static_cast<int64_t>(timing.samples.size());
  if (missing <= 0) return std::move(timing.samples);
  single.max_seconds = kNoLimit;
  single.repeat = static_cast<int>(missing);
  ASSIGN_OR_RETURN(const Timing more, runner.Bench(single));
  timing.samples.insert(timing.samples.end(), more.samples.begin(), more.samples.end());
  return std::move(timing.samples);
}

// REQUIRES: sorted, not empty, 0 < percent <= 100.
double Percentile(const std::vector<double>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[std::clamp<size_t>(static_cast<size_t>(rank), 1, sorted.size()) - 1];
}

}  // namespace

double PackageBench::RunsPerSecond() const { return 1 / MedianSeconds(back_to_back); }

absl::StatusOr<PackageBench> BenchPackage(PackageRunner& runner, const BenchOptions& options) {
  RETURN_IF_ERROR(WarmUp(runner, options.warm_up_seconds));
  PackageBench bench;
  ASSIGN_OR_RETURN(bench.runs, SingleRuns(runner, options.seconds, options.least_runs));
  TimingOptions back_to_back;
  back_to_back.repeat = options.repeat;
  back_to_back.min_repeat_ms = options.min_repeat_ms;
  back_to_back.max_seconds = kNoLimit;
  ASSIGN_OR_RETURN(bench.back_to_back, runner.Bench(back_to_back));
  return bench;
}

RunStatistics StatisticsOf(std::vector<double> values) {
  DIAPASON_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  RunStatistics d;
  const double count = static_cast<double>(values.size());
  d.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (double value : values) squares += (value - d.mean) * (value - d.mean);
  d.std = count > 1 ? std::sqrt(squares / (count - 1)) : 0;
  d.min = values.front();
  d.max = values.back();
  d.p50 = Percentile(values, 50);
  d.p90 = Percentile(values, 90);
  d.p99 = Percentile(values, 99);
  return d;
}

}  // namespace diapason
