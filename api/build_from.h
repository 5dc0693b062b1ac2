// Builds with records from anywhere: Build (diapason/compiler.h) takes those of histories and files, the command line
// also those of a service.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/record_sources.h"
#include "diapason/compiler.h"

namespace diapason::api {

// As Build, with records of `sources` in this order, and those that come with the program after them unless
// options.shipped_records is off; options.histories say only where the latency of the network is looked up and kept.
absl::StatusOr<BuildReport> BuildFrom(const BuildOptions& options, std::vector<std::unique_ptr<RecordSource>> sources);

}  // namespace diapason::api
