// Builds with records from anywhere: Build (diapason/compiler.h) takes those of a history, the command line also those
// of a service.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/compiler.h"
#include "service/network_assembly.h"
#include "service/target.h"

namespace diapason::api {

// Where the records of a build come from.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // The best record of each workload that has one. `may_differ`: records of another device are better than none.
  virtual absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& workload_keys,
                                                 const ResolvedTarget& target, bool may_differ) = 0;
  // Notes that the record makes a network wrong. What the user should know of it, one sentence; empty: nothing.
  virtual std::string Mark(const TuningRecord& record, double max_error, const std::string& evidence) = 0;
};

// As Build; options.history is only where the latency of the network is looked up and kept.
absl::StatusOr<BuildReport> BuildFrom(const BuildOptions& options, RecordSource& source);

}  // namespace diapason::api
