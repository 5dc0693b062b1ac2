// Keeping only the best records of a history.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason {

struct PruneReport {
  int64_t kept = 0, dropped = 0;
  int64_t bytes_before = 0, bytes_after = 0;
};

// Keeps the best `keep` of each workload, target and device, in the order of History::BestForBuild; failed
// measurements, refuted records and runs without a record go. Into a new file, or in this history when `path` is empty.
// AlreadyExists when there is such a file; FailedPrecondition for a file that a PostgreSQL database would be pruned
// into. REQUIRES: keep >= 1.
absl::StatusOr<PruneReport> PruneHistory(History& history, int64_t keep, const std::string& path = "");

}  // namespace diapason
