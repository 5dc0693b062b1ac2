// Measures a loaded package: the latency of single runs, and the throughput of runs back to back.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/build/package.h"
#include "compiler/runtime/outcome.h"

namespace diapason {

struct BenchOptions {
  double warm_up_seconds = 0.2;  // runs that are not measured; one at least
  double seconds = 3;            // of single runs
  int64_t least_runs = 10;       // single runs, however long they take
  int repeat = 10;               // samples of runs back to back
  double min_repeat_ms = 100;    // least length of such a sample
};

struct PackageBench {
  // Seconds of each run, alone from start to end with inputs in place: device time on cuda, by a steady clock
  // elsewhere.
  std::vector<double> runs;
  // Samples of runs back to back (Timing::number of them).
  Timing back_to_back;

  // What runs back to back reach, by the median sample.
  double RunsPerSecond() const;
};

// Warms up, then measures runs one by one and back to back. Inputs must have been set. Errors of running.
absl::StatusOr<PackageBench> BenchPackage(PackageRunner& runner, const BenchOptions& options);

// Of seconds of runs. Percentiles by nearest rank: the least value that so many per cent do not exceed.
struct RunStatistics {
  double mean = 0, std = 0, min = 0, max = 0, p50 = 0, p90 = 0, p99 = 0;
};
// REQUIRES: not empty.
RunStatistics StatisticsOf(std::vector<double> values);

}  // namespace diapason
