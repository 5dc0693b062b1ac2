#include "compiler/build/measure_latency.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/runtime/measure.h"

namespace diapason {
namespace {

absl::StatusOr<double> MeasurePlan(PackageRunner& runner, const LatencySamples& samples) {
  RETURN_IF_ERROR(runner.Run());
  TimingOptions options;
  options.repeat = samples.count;
  options.min_repeat_ms = samples.least_ms;
  options.max_seconds = samples.most_seconds;
  ASSIGN_OR_RETURN(const Timing timing, runner.Bench(options));
  return MedianSeconds(timing);
}

}  // namespace

absl::StatusOr<double> MeasureLatency(PackageRunner& runner, const LatencySamples& samples) {
  ASSIGN_OR_RETURN(const double seconds, MeasurePlan(runner, samples));
  if (!runner.UseOtherPlan()) return seconds;
  ASSIGN_OR_RETURN(const double other, MeasurePlan(runner, samples));
  return std::min(seconds, other);
}

}  // namespace diapason
