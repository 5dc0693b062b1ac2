// Checks, exports, imports, copies and pruning of histories.
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/compiler_hooks.h"
#include "api/parameter_names.h"
#include "api/record.h"
#include "api/version.h"
#include "base/check.h"
#include "base/replace_file.h"
#include "db/copy.h"
#include "db/history.h"
#include "db/integrity.h"
#include "db/json_lines.h"
#include "db/prune.h"
#include "db/t4_export.h"
#include "diapason/history.h"

namespace diapason::api {

absl::StatusOr<HistoryProblems> CheckHistory(const std::string& path) {
  ASSIGN_OR_RETURN(CheckReport report, ::diapason::CheckHistory(path, CompilerHooks()));
  return HistoryProblems{report.records, std::move(report.problems)};
}

absl::StatusOr<ExportedRecords> ExportHistory(const std::string& path, const HistoryExport& options,
                                              std::ostream& out) {
  const bool t4 = options.format == "t4";
  if (!t4 && options.format != "jsonl")
    return absl::InvalidArgumentError(absl::StrCat("the format '", options.format, "' is unknown; give jsonl or t4"));
  ExportOptions how;
  ASSIGN_OR_RETURN(how.filter, FilterOf(options.records));
  how.skip_damaged = options.skip_damaged;
  how.with_host = options.with_host;
  HistoryOptions opened;
  opened.allow_damage = options.skip_damaged;
  ASSIGN_OR_RETURN(const auto history, ::diapason::History::Open(path, HistoryMode::kReadOnly, opened));
  ParameterNames names;
  const auto names_of = [&](const TuningRecord& record) { return names.Of(record); };
  if (t4) {
    ASSIGN_OR_RETURN(ExportReport report, ExportT4(*history, out, {how, names_of}));
    return ExportedRecords{report.records, std::move(report.damaged)};
  }
  how.program = absl::StrCat("diapason ", kVersion);
  how.names = names_of;
  ASSIGN_OR_RETURN(ExportReport report, ExportJson(*history, out, how));
  return ExportedRecords{report.records, std::move(report.damaged)};
}

absl::StatusOr<ExportedRecords> ExportHistoryToFile(const std::string& path, const HistoryExport& options,
                                                    const std::string& file) {
  RETURN_IF_ERROR(CheckReplaceable(file, "export of a history", {"{\"format\":", "{\"schema_version\":"}));
  absl::StatusOr<ExportedRecords> exported;
  RETURN_IF_ERROR(ReplaceFile(file, [&](std::ostream& out) {
    exported = ExportHistory(path, options, out);
    return exported.status();
  }));
  return exported;
}

absl::StatusOr<ImportedRecords> ImportHistory(const std::string& path, std::istream& in, const std::string& name,
                                              bool skip_damaged) {
  ASSIGN_OR_RETURN(const auto history, ::diapason::History::Open(path, HistoryMode::kCreate));
  ImportOptions how;
  how.skip_damaged = skip_damaged;
  ASSIGN_OR_RETURN(ImportReport report, ImportJson(*history, in, name, how));
  return ImportedRecords{report.lines, report.added, report.known, report.updated, std::move(report.damaged)};
}

absl::StatusOr<CopiedRecords> CopyHistory(const std::string& from, const std::string& to) {
  ASSIGN_OR_RETURN(const auto source, ::diapason::History::Open(from, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const auto copy, ::diapason::History::Open(to, HistoryMode::kCreate));
  ASSIGN_OR_RETURN(const CopyReport report, ::diapason::CopyHistory(*source, *copy));
  return CopiedRecords{report.records.added, report.records.known, report.records.updated, report.latencies};
}

absl::StatusOr<PrunedRecords> PruneHistory(const std::string& path, int64_t keep, const std::string& out) {
  RETURN_IF_ERROR(CheckKeep(keep));
  ASSIGN_OR_RETURN(const auto history, ::diapason::History::Open(path, HistoryMode::kReadWrite));
  ASSIGN_OR_RETURN(const PruneReport report, ::diapason::PruneHistory(*history, keep, out));
  return PrunedRecords{report.kept, report.dropped, report.bytes_before, report.bytes_after};
}

}  // namespace diapason::api
