// Whether a history is undamaged.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason {

struct CheckReport {
  int64_t records = 0;
  std::vector<std::string> problems;  // one sentence each, at most 1000 and then their number
  bool ok() const { return problems.empty(); }
};

// What the history cannot know by itself, since it reads no programs: handed in by a caller that links the compiler. An
// absent function is not checked.
struct CheckHooks {
  // The key of these bytes, or why they are no dag.
  std::function<absl::StatusOr<std::string>(const std::string& workload)> workload_key;
  // Whether the schedule decodes and replays.
  std::function<absl::Status(const TuningRecord& record)> schedule;
  std::function<uint64_t(const TuningRecord& record)> configuration_hash;
};

// Reads everything: SQLite's integrity check, each record's checksum and fields, hashes, links to nothing. Works on
// damaged files that History::Open refuses; a status only when the file is missing, unreadable or no history at all.
absl::StatusOr<CheckReport> CheckHistory(const std::string& path, const CheckHooks& hooks = {},
                                         HistoryOptions options = {});

}  // namespace diapason
