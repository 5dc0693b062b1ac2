// Records, for the public headers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "db/history.h"
#include "diapason/history.h"

namespace diapason::api {

// REQUIRES: it is a measurement that succeeded.
Record RecordOf(const TuningRecord& record);
// Sets count and share of records as History::TopK orders them, and brings the workloads of each target and device in
// the order of their shares. `counts`: of the network's workloads.
void RankByShare(const std::map<std::string, double>& counts, std::vector<Record>& records);
// InvalidArgument when the target does not parse.
absl::StatusOr<RecordFilter> FilterOf(const RecordQuery& query);
// InvalidArgument where fewer than one of the best records are to be kept.
absl::Status CheckKeep(int64_t keep);

}  // namespace diapason::api
