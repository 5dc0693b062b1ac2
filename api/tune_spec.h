// What is to be tuned, from the public options: for Tune, and for jobs of a service.
#pragma once

#include "absl/status/statusor.h"
#include "diapason/tuner.h"
#include "service/tune_spec.h"

namespace diapason::api {

// Of `options`, all that a job of a service may have: not the history, nor what is said of this host's processes.
// InvalidArgument names the option that is malformed.
absl::StatusOr<TuneSpec> SpecOf(const TuneOptions& options);

}  // namespace diapason::api
