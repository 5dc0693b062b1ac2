// The lines of exported JSON, as docs/history.md describes them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason {

// Of lines that are complete in themselves, and of those behind a header. Both are read.
inline constexpr int64_t kLineFormat = 1, kHeaderFormat = 2;

// What a line holds: a record with its workload, run and networks, or a part of these; or a header, with runs.
struct HistoryLine {
  std::optional<TuningRecord> record;  // without `workload`, which is beside it
  std::optional<TuningRun> run;
  std::string run_uuid;         // of the record's run, which a header has; empty: `run`, or none
  std::vector<TuningRun> runs;  // of a header
  std::string workload_key, workload;
  std::vector<NetworkTask> networks;
};

enum class GotLine { kEnd, kLine, kTooLong, kUnreadable };

// The next line without its end. Reading must stop at one of more than 256 MiB (kTooLong), and where the system reports
// an error (kUnreadable), as it does for a folder.
GotLine ReadHistoryLine(std::istream& in, std::string& text);
// The error of a file with that name for kUnreadable.
absl::Status UnreadableLines(const std::string& name);
// InvalidArgument with the reason alone: no JSON, another format, a field that is missing or out of range, or a
// checksum that does not match.
absl::StatusOr<HistoryLine> ParseHistoryLine(const std::string& text);

}  // namespace diapason
