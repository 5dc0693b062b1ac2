// The history as JSON lines; docs/history.md describes the fields.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason {

struct ImportOptions {
  bool skip_damaged = false;  // import the good lines and report the others, instead of importing nothing
};
struct ImportReport {
  int64_t lines = 0, added = 0;
  int64_t known = 0;                 // records that were there already, recognized by uuid
  int64_t updated = 0;               // of these, those that gained their verification
  std::vector<std::string> damaged;  // with skip_damaged: a sentence a line
};
// A line for each record; with ExportOptions::program behind a line of the runs. Workloads, and runs that no line has
// named, get a line of their own. Lines may be chosen, joined and reordered. Importing them elsewhere and exporting
// again gives the same lines. ResourceExhausted where `out` takes no more; else as History::Scan.
absl::StatusOr<ExportReport> ExportJson(History& history, std::ostream& out, const ExportOptions& options = {});

// In one transaction. A record that is there already (by uuid) is left, and gains its verification when it had none
// or when the line says that it is wrong in a network, and samples that were added to it since. `name` is what
// messages call the input. InvalidArgument names the line that is damaged; then nothing is imported.
absl::StatusOr<ImportReport> ImportJson(History& history, std::istream& in, const std::string& name,
                                        const ImportOptions& options = {});

}  // namespace diapason
