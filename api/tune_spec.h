// Conversion of the public options to a TuneSpec, for Tune and for jobs of a service.
#pragma once

#include "absl/status/statusor.h"
#include "diapason/tuner.h"
#include "service/tune_spec.h"

namespace diapason::api {

// The part of `options` that applies to a job of a service: all but the history and the options of this host's
// processes. InvalidArgument names a malformed option.
absl::StatusOr<TuneSpec> SpecOf(const TuneOptions& options);

}  // namespace diapason::api
