// Taking in the JSON lines that export writes.
#include <algorithm>
#include <istream>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/history_database.h"
#include "db/json_line.h"
#include "db/json_lines.h"
#include "db/text.h"

namespace diapason {
namespace {

// Whether `longer` is the same record as `shorter` after History::AddSamples.
bool Continues(const TuningRecord& longer, TuningRecord shorter) {
  const Timing *more = longer.timing(), *less = shorter.timing();
  if (more == nullptr || less == nullptr || more->samples.size() <= less->samples.size() || more->stopped_early)
    return false;
  if (!std::equal(less->samples.begin(), less->samples.end(), more->samples.begin()) || more->number != less->number)
    return false;
  shorter.outcome = longer.outcome;
  return RecordChecksum(shorter) == RecordChecksum(longer);
}

class Importer {
 public:
  static absl::StatusOr<std::unique_ptr<Importer>> Create(Database* db) {
    ASSIGN_OR_RETURN(RecordWriter writer, RecordWriter::Create(db));
    ASSIGN_OR_RETURN(Statement find, db->Prepare("SELECT id, verified, checksum FROM records WHERE uuid = ?"));
    ASSIGN_OR_RETURN(Statement verify, db->Prepare("UPDATE records SET verified = ?, max_error = ?, verify_text = ? "
                                                   "WHERE id = ?"));
    ASSIGN_OR_RETURN(Statement link, db->Prepare("INSERT INTO networks(network, workload_key, task_name, weight) "
                                                 "VALUES(?, ?, ?, ?) ON CONFLICT DO NOTHING"));
    return std::unique_ptr<Importer>(
        new Importer(db, std::move(writer), std::move(find), std::move(verify), std::move(link)));
  }

  // InvalidArgument with the reason alone for a line that contradicts the history; nothing is changed then.
  absl::Status Add(HistoryLine& line, ImportReport& report) {
    int64_t known = 0;
    if (line.record.has_value()) {
      ASSIGN_OR_RETURN(known, FindRecord(*line.record, report));
    }
    if (!line.workload_key.empty()) RETURN_IF_ERROR(writer_.StoreWorkload(line.workload_key, line.workload));
    for (const NetworkTask& task : line.networks) RETURN_IF_ERROR(Link(task));
    for (const TuningRun& run : line.runs) RETURN_IF_ERROR(FindOrAddRun(run).status());
    int64_t run_id = 0;
    if (!line.run_uuid.empty()) {
      ASSIGN_OR_RETURN(run_id, FindOrAddRun({.uuid = line.run_uuid}));  // of which a header may come yet
    } else if (line.run.has_value()) {
      ASSIGN_OR_RETURN(run_id, FindOrAddRun(*line.run));
    }
    if (!line.record.has_value() || known != 0) return absl::OkStatus();
    line.record->run_id = run_id;
    ++report.added;
    return writer_.Insert(*line.record).status();
  }

 private:
  Importer(Database* db, RecordWriter writer, Statement find, Statement verify, Statement link)
      : db_(db),
        writer_(std::move(writer)),
        find_(std::move(find)),
        verify_(std::move(verify)),
        link_(std::move(link)) {}

  // Its id here, 0 if none. Passes on the verification, and samples that it got since.
  absl::StatusOr<int64_t> FindRecord(const TuningRecord& record, ImportReport& report) {
    find_.Reset();
    find_.BindText(1, record.uuid);
    ASSIGN_OR_RETURN(const bool row, find_.Step());
    const int64_t id = row ? find_.Int(0) : 0;
    const std::string here = row ? find_.Bytes(1) : "";
    const bool same = row && static_cast<uint64_t>(find_.Int(2)) == RecordChecksum(record);
    find_.Reset();
    if (!row) return 0;
    bool gains_samples = false;
    if (!same) {
      ASSIGN_OR_RETURN(gains_samples, GainsSamples(id, record));
    }
    ++report.known;
    const bool first = here == VerifiedName(Verified::kUnknown) && record.verified != Verified::kUnknown;
    // What was found in a network is newer than the verification of the record alone.
    const bool refuted = here == VerifiedName(Verified::kOk) && record.verified == Verified::kWrongInNetwork;
    report.updated += gains_samples || first || refuted ? 1 : 0;
    if (!first && !refuted) return id;
    verify_.BindText(1, VerifiedName(record.verified));
    if (record.max_error.has_value()) verify_.BindReal(2, *record.max_error);
    verify_.BindText(3, record.verify_text);
    verify_.BindInt(4, id);
    RETURN_IF_ERROR(verify_.Run());
    return id;
  }

  // Of a record that differs from the one here: takes its samples if they go on from those here; false if it is the
  // other way round.
  absl::StatusOr<bool> GainsSamples(int64_t id, const TuningRecord& record) {
    TuningRecord here;
    {
      ASSIGN_OR_RETURN(Statement query, db_->Prepare(SelectRecords("WHERE r.id = ?1")));
      query.BindInt(1, id);
      ASSIGN_OR_RETURN(const bool row, query.Step());
      DIAPASON_CHECK(row);
      ASSIGN_OR_RETURN(here, ReadRecordOf(*db_, query));
    }
    if (Continues(here, record)) return false;
    if (!Continues(record, here)) return absl::InvalidArgumentError("the history has a different record with its uuid");
    here.outcome = record.outcome;
    ASSIGN_OR_RETURN(Statement update, db_->Prepare(kUpdateTiming));
    RETURN_IF_ERROR(UpdateTiming(update, here));
    return true;
  }

  absl::Status Link(const NetworkTask& task) {
    link_.BindText(1, CleanUtf8(task.network));
    link_.BindText(2, task.workload_key);
    link_.BindText(3, CleanUtf8(task.task_name));
    link_.BindReal(4, task.weight);
    return link_.Run();
  }

  // A run of which only the uuid is known, without a start, is one that gains everything.
  absl::StatusOr<int64_t> FindOrAddRun(const TuningRun& run) {
    const auto cached = runs_.find(run.uuid);
    if (cached != runs_.end()) return cached->second;
    ASSIGN_OR_RETURN(Statement query, db_->Prepare("SELECT id, started_at, ended_at FROM runs WHERE uuid = ?"));
    query.BindText(1, run.uuid);
    ASSIGN_OR_RETURN(const bool row, query.Step());
    int64_t id = row ? query.Int(0) : 0;
    const bool gains_all = row && query.Int(1) == 0 && run.started_at != 0;
    const bool gains_end = row && query.Int(2) == 0 && run.ended_at != 0;
    query.Reset();
    if (gains_all) RETURN_IF_ERROR(Complete(id, run));
    if (!row) {
      ASSIGN_OR_RETURN(id, InsertRun(*db_, run));
    }
    if (gains_end)
      RETURN_IF_ERROR(db_->Exec(absl::StrCat("UPDATE runs SET ended_at = ", run.ended_at, " WHERE id = ", id)));
    if (run.started_at != 0) runs_[run.uuid] = id;
    return id;
  }

  absl::Status Complete(int64_t id, const TuningRun& run) {
    ASSIGN_OR_RETURN(Statement update,
                     db_->Prepare("UPDATE runs SET command_line = ?, seed = ?, host = ?, version = ?, "
                                  "started_at = ? WHERE id = ?"));
    update.BindText(1, CleanUtf8(run.command_line));
    update.BindInt(2, static_cast<int64_t>(run.seed));
    update.BindText(3, CleanUtf8(run.host));
    update.BindText(4, CleanUtf8(run.version));
    update.BindInt(5, run.started_at);
    update.BindInt(6, id);
    return update.Run();
  }

  Database* db_;
  RecordWriter writer_;
  Statement find_, verify_, link_;
  std::map<std::string, int64_t> runs_;  // by uuid
};

// With `savepoint`, a line that contradicts the history leaves the transaction as it was before it.
absl::Status AddLine(Importer& importer, Database& db, HistoryLine& line, bool savepoint, ImportReport& report) {
  if (!savepoint) return importer.Add(line, report);
  RETURN_IF_ERROR(db.Exec("SAVEPOINT line"));
  absl::Status added = importer.Add(line, report);
  RETURN_IF_ERROR(db.Exec(added.ok() ? "RELEASE line" : "ROLLBACK TO line; RELEASE line"));
  return added;
}

}  // namespace

absl::StatusOr<ImportReport> ImportJson(History& history, std::istream& in, const std::string& name,
                                        const ImportOptions& options) {
  HistoryDatabase& database = history.database();
  MutexLock lock(database.mu);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database.db.get(), /*for_writing=*/true));
  ASSIGN_OR_RETURN(std::unique_ptr<Importer> importer, Importer::Create(database.db.get()));
  ImportReport report;
  std::string text;
  for (GotLine got = ReadHistoryLine(in, text); got != GotLine::kEnd; got = ReadHistoryLine(in, text)) {
    if (got == GotLine::kUnreadable) return UnreadableLines(name);
    ++report.lines;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    absl::StatusOr<HistoryLine> line =
        got == GotLine::kTooLong ? absl::InvalidArgumentError("it is too long") : ParseHistoryLine(text);
    absl::Status status =
        line.ok() ? AddLine(*importer, *database.db, *line, options.skip_damaged, report) : line.status();
    if (status.ok()) continue;
    if (!absl::IsInvalidArgument(status)) return status;
    const std::string problem = absl::StrCat("line ", report.lines, " of '", name, "' is damaged (",
                                             OneLine(std::string(status.message())), ")");
    if (!options.skip_damaged || got == GotLine::kTooLong) {
      return absl::InvalidArgumentError(
          absl::StrCat(problem, "; nothing was imported: correct or remove the line, or give --skip-damaged"));
    }
    report.damaged.push_back(problem);
  }
  RETURN_IF_ERROR(transaction.Commit());
  return report;
}

}  // namespace diapason
