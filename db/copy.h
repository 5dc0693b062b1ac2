// Copying one history into another, whatever databases are behind them.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "db/history.h"
#include "db/json_lines.h"

namespace diapason {

struct CopyReport {
  ImportReport records;
  int64_t latencies = 0;  // those of networks that `to` did not have, or had older ones of
};

// Adds all of `from` to `to`, as export and import do and in one transaction, and latencies of networks. What is there
// already stays. Needs room in the folder for temporary files.
absl::StatusOr<CopyReport> CopyHistory(History& from, History& to);

}  // namespace diapason
