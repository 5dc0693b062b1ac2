#include "db/prune.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/history_database.h"
#include "db/schema.h"
#include "db/sqlite.h"

namespace diapason {
namespace {

// Runs that have no end stay: another process may be about to store their records.
absl::Status DeleteTheRest(Database& db, int64_t keep, PruneReport& report) {
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&db, /*for_writing=*/true));
  ASSIGN_OR_RETURN(
      Statement records,
      db.Prepare(
          "DELETE FROM records WHERE id NOT IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER "
          "(PARTITION BY workload_key, target, device_model "
          "ORDER BY verified <> 'ok', raced_out, median, id) AS place FROM records "
          "WHERE median IS NOT NULL AND verified NOT IN ('failed', 'wrong_in_network')) AS ranked WHERE place <= ?1)"));
  records.BindInt(1, keep);
  RETURN_IF_ERROR(records.Run());
  report.dropped = db.changes();
  RETURN_IF_ERROR(
      db.Exec("DELETE FROM runs WHERE ended_at <> 0 AND id NOT IN "
              "(SELECT run_id FROM records WHERE run_id IS NOT NULL)"));
  RETURN_IF_ERROR(
      db.Exec("DELETE FROM workloads WHERE workload_key NOT IN (SELECT workload_key FROM records) AND "
              "workload_key NOT IN (SELECT workload_key FROM networks)"));
  ASSIGN_OR_RETURN(report.kept, db.QueryInt("SELECT COUNT(*) FROM records"));
  return transaction.Commit();
}

absl::Status PruneDatabase(Database& db, int64_t keep, PruneReport& report) {
  RETURN_IF_ERROR(DeleteTheRest(db, keep, report));
  RETURN_IF_ERROR(db.Compact());
  ASSIGN_OR_RETURN(report.bytes_after, db.Bytes());
  return absl::OkStatus();
}

absl::Status PruneCopy(SqliteDatabase& source, const std::string& path, int64_t keep, PruneReport& report) {
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> copy,
                   SqliteDatabase::Open(path, SqliteDatabase::Access::kCreate, std::chrono::milliseconds(1000)));
  RETURN_IF_ERROR(copy->Exec("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(source.CopyTo(*copy));
  RETURN_IF_ERROR(PruneDatabase(*copy, keep, report));
  return copy->Exec("PRAGMA journal_mode=WAL");
}

}  // namespace

absl::StatusOr<PruneReport> PruneHistory(History& history, int64_t keep, const std::string& path) {
  DIAPASON_CHECK(keep >= 1);
  HistoryDatabase& database = history.database();
  MutexLock lock(database.mu);
  PruneReport report;
  ASSIGN_OR_RETURN(report.bytes_before, database.db->Bytes());
  if (path.empty()) {
    RETURN_IF_ERROR(PruneDatabase(*database.db, keep, report));
    return report;
  }
  auto* file = dynamic_cast<SqliteDatabase*>(database.db.get());
  if (file == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("history '", database.path,
                     "' is a PostgreSQL database, from which no pruned file can be made at once; copy it "
                     "with 'diapason history copy' and prune the copy, or prune it in place without --out"));
  }
  struct stat ignored;
  if (lstat(path.c_str(), &ignored) == 0)
    return absl::AlreadyExistsError(absl::StrCat("'", path, "' exists already; name a file that does not"));
  const std::string unfinished = absl::StrCat(path, ".new-", database.options.new_uuid());
  absl::Status status = PruneCopy(*file, unfinished, keep, report);
  if (status.ok()) status = RenameToFreeName(unfinished, path);
  RemoveDatabase(unfinished);
  RETURN_IF_ERROR(RenamedError(status, unfinished, path));
  return report;
}

}  // namespace diapason
