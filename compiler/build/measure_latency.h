// How long a loaded package takes from end to end.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/build/package.h"

namespace diapason {

// Median seconds of a run with inputs in place, over a few samples and 2 seconds at most; of the faster plan where two
// were kept, since that is what loading takes. Inputs must have been set. Errors of running.
absl::StatusOr<double> MeasureLatency(PackageRunner& runner);

}  // namespace diapason
