// Export of a history in Kernel Tuner's T4 schema, for tools that compare tuners. docs/history.md has the mapping of
// fields.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "db/history.h"

namespace diapason {

struct T4Options {
  ExportOptions records;
  // Returns the names of a record's parameters, which are known to the search spaces only. A parameter without a name
  // is exported with its position.
  std::function<std::vector<std::string>(const TuningRecord& record)> names;
};

// T4's name for the result of a candidate: "correct", "compile", "timeout", ... Empty for an infrastructure failure,
// which T4 cannot represent.
std::string T4Invalidity(const TuningRecord& record);

// Writes one JSON document with the selected records in the order of their ids, without infrastructure failures. Errors
// are those of ExportJson (db/json_lines.h); after an error the document is incomplete.
absl::StatusOr<ExportReport> ExportT4(History& history, std::ostream& out, const T4Options& options = {});

}  // namespace diapason
