#include "compiler/build/measure_latency.h"

#include <algorithm>

#include "base/check.h"
#include "compiler/runtime/measure.h"

namespace diapason {
namespace {

// As long as `diapason run --bench` takes by default would keep a build of a slow network waiting.
constexpr int kSamples = 5;
constexpr double kSampleMs = 20, kMostSeconds = 2;

absl::StatusOr<double> MeasurePlan(PackageRunner& runner) {
  RETURN_IF_ERROR(runner.Run());
  TimingOptions options;
  options.repeat = kSamples;
  options.min_repeat_ms = kSampleMs;
  options.max_seconds = kMostSeconds;
  ASSIGN_OR_RETURN(const Timing timing, runner.Bench(options));
  return MedianSeconds(timing);
}

}  // namespace

absl::StatusOr<double> MeasureLatency(PackageRunner& runner) {
  ASSIGN_OR_RETURN(const double seconds, MeasurePlan(runner));
  if (!runner.UseOtherPlan()) return seconds;
  ASSIGN_OR_RETURN(const double other, MeasurePlan(runner));
  return std::min(seconds, other);
}

}  // namespace diapason
