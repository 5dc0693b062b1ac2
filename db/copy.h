// Copies a history into another one, whichever database (a file or PostgreSQL) each of them is kept in.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "db/history.h"
#include "db/json_lines.h"

namespace diapason {

struct CopyReport {
  ImportReport records;
  int64_t latencies = 0;  // latencies of networks that were added, or that replaced older ones
};

// Adds to `to` what only `from` has: records, runs, workloads and networks, as ExportJson and ImportJson do, in one
// transaction; then the latencies of networks, each unless `to` has a newer one. Nothing is removed from either.
// PermissionDenied: no temporary file, which the lines go through, can be made in TMPDIR. Else the errors of ExportJson
// and ImportJson, after which `to` is unchanged.
absl::StatusOr<CopyReport> CopyHistory(History& from, History& to);

}  // namespace diapason
