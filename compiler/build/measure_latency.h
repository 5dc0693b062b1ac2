// How long a loaded package takes from end to end.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/build/package.h"

namespace diapason {

// As long as `diapason run --bench` takes by default would keep a build of a slow network waiting.
struct LatencySamples {
  int count = 5;
  double least_ms = 20;     // of a sample
  double most_seconds = 2;  // of all
};

// Median seconds of a run with inputs in place, over a few samples; of the faster plan where two were kept, since that
// is what loading takes. Inputs must have been set. Errors of running.
absl::StatusOr<double> MeasureLatency(PackageRunner& runner, const LatencySamples& samples = {});

}  // namespace diapason
