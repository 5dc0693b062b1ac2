// The history as results of Kernel Tuner's T4 schema, which tools for comparing tuners read. docs/history.md has the
// mapping of fields.
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
  // Names of a record's parameters, which only the search spaces know. Those without a name get their position.
  std::function<std::vector<std::string>(const TuningRecord& record)> names;
};

// T4's word for what became of a candidate: "correct", "compile", "timeout", ... Empty for a measurement that says
// nothing of its candidate, for which T4 has no word.
std::string T4Invalidity(const TuningRecord& record);

// One JSON document with the records that the options select, in the order of their ids, without those that say
// nothing of their candidates. Errors as those of ExportJson (db/json_lines.h); a document that was begun is not ended
// then.
absl::StatusOr<ExportReport> ExportT4(History& history, std::ostream& out, const T4Options& options = {});

}  // namespace diapason
