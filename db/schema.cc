#include "db/schema.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "db/sqlite.h"

namespace diapason {
namespace {

// Element i leads from version i to i + 1; a published one never changes. Times are REAL seconds or INTEGER Unix
// nanoseconds; unsigned 64-bit numbers are stored as the signed ones of the same bits.
constexpr const char* kMigrations[] = {
    R"(
CREATE TABLE workloads(
  workload_key TEXT PRIMARY KEY NOT NULL,
  dag BLOB NOT NULL,
  checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE runs(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid TEXT NOT NULL UNIQUE,
  command_line TEXT NOT NULL,
  seed INTEGER NOT NULL,
  host TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at INTEGER NOT NULL
) STRICT;
CREATE TABLE networks(
  network TEXT NOT NULL,
  workload_key TEXT NOT NULL REFERENCES workloads(workload_key),
  task_name TEXT NOT NULL,
  weight REAL NOT NULL,
  PRIMARY KEY(network, workload_key)
) STRICT;
CREATE TABLE records(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  uuid TEXT NOT NULL UNIQUE,
  run_id INTEGER REFERENCES runs(id),
  workload_key TEXT NOT NULL REFERENCES workloads(workload_key),
  task_name TEXT NOT NULL,
  target TEXT NOT NULL,
  device_model TEXT NOT NULL,
  device_uuid TEXT NOT NULL,
  view TEXT NOT NULL,
  sketch TEXT NOT NULL,
  schedule BLOB NOT NULL,
  decisions TEXT NOT NULL,
  decision_hash INTEGER NOT NULL,
  median REAL,
  samples TEXT,
  number INTEGER,
  raced_out INTEGER,
  build_seconds REAL,
  run_seconds REAL,
  error_kind TEXT,
  error_stage TEXT,
  error_text TEXT,
  predicted REAL,
  seed INTEGER NOT NULL,
  trial INTEGER NOT NULL,
  sm_mhz INTEGER NOT NULL,
  memory_mhz INTEGER NOT NULL,
  cpu_mhz INTEGER NOT NULL,
  driver TEXT NOT NULL,
  compiler TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  checksum INTEGER NOT NULL,
  CHECK((samples IS NULL) = (median IS NULL) AND (samples IS NULL) <> (error_kind IS NULL))
) STRICT;
CREATE INDEX records_by_time ON records(workload_key, device_model, raced_out, median);
CREATE INDEX records_by_run ON records(run_id);
)",
    // Verification of records on the device.
    R"(
ALTER TABLE records ADD COLUMN verified TEXT NOT NULL DEFAULT 'unknown'
  CHECK(verified IN ('unknown', 'ok', 'failed'));
ALTER TABLE records ADD COLUMN max_error REAL;
ALTER TABLE records ADD COLUMN verify_text TEXT NOT NULL DEFAULT '';
)",
    // What networks took from end to end.
    R"(
CREATE TABLE latencies(
  network TEXT NOT NULL,
  target TEXT NOT NULL,
  device_model TEXT NOT NULL,
  measured REAL NOT NULL,
  tasks REAL NOT NULL,
  modelled REAL NOT NULL,
  measured_at INTEGER NOT NULL,
  PRIMARY KEY(network, target, device_model)
) STRICT;
)",
    // Another state of verification. SQLite changes no CHECK: the column is made anew.
    R"(
ALTER TABLE records RENAME COLUMN verified TO verified_of_version_3;
ALTER TABLE records ADD COLUMN verified TEXT NOT NULL DEFAULT 'unknown'
  CHECK(verified IN ('unknown', 'ok', 'failed', 'wrong_in_network'));
UPDATE records SET verified = verified_of_version_3 WHERE verified_of_version_3 <> 'unknown';
ALTER TABLE records DROP COLUMN verified_of_version_3;
)",
    // A measured latency says more than any model of what runs side by side.
    R"(
ALTER TABLE latencies DROP COLUMN modelled;
)",
};
static_assert(std::size(kMigrations) == kSchemaVersion);

absl::Status SystemError(const std::string& what, int error) {
  const std::string text = absl::StrCat(what, " (", std::strerror(error), ")");
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return absl::ResourceExhaustedError(absl::StrCat(text, "; free space on its disk and try again"));
  return absl::PermissionDeniedError(
      absl::StrCat(text, "; give yourself permission for its folder, or name another file"));
}

// The new name is on the disk, not only in memory.
void SyncFolderOf(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)fsync(fd);
  close(fd);
}

absl::Status FillNewFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteDatabase> db,
                   SqliteDatabase::Open(path, SqliteDatabase::Access::kCreate, std::chrono::milliseconds(1000)));
  RETURN_IF_ERROR(db->Exec("PRAGMA synchronous=FULL"));
  RETURN_IF_ERROR(db->Exec(absl::StrCat("PRAGMA application_id=", kApplicationId)));
  RETURN_IF_ERROR(Migrate(*db));
  return db->Exec("PRAGMA journal_mode=WAL");
}

}  // namespace

absl::Status NewerVersion(const std::string& path, int64_t version) {
  return absl::FailedPreconditionError(absl::StrCat("history '", path, "' has schema version ", version,
                                                    ", newer than this program's ", kSchemaVersion,
                                                    "; use a newer diapason, or name another file"));
}

absl::Status CheckIdentity(Database& db) {
  ASSIGN_OR_RETURN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("'", db.path(),
                     "' is not a Diapason history (it is an SQLite database of another program); name another file"));
  }
  ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  if (version > kSchemaVersion) return NewerVersion(db.path(), version);
  if (version < 1) return DamagedError(db.path(), absl::StrCat("its schema version is ", version));
  return absl::OkStatus();
}

absl::Status Migrate(Database& db) {
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&db, /*for_writing=*/true));
  ASSIGN_OR_RETURN(const int64_t version, db.QueryInt("PRAGMA user_version"));  // another process may have been faster
  if (version > kSchemaVersion) return NewerVersion(db.path(), version);
  for (int64_t step = version; step < kSchemaVersion; ++step) RETURN_IF_ERROR(db.Exec(kMigrations[step]));
  if (version != kSchemaVersion) RETURN_IF_ERROR(db.Exec(absl::StrCat("PRAGMA user_version=", kSchemaVersion)));
  return transaction.Commit();
}

absl::Status CheckTables(Database& db) {
  static constexpr const char* kQueries[] = {
      "SELECT workload_key, dag, checksum FROM workloads",
      "SELECT id, uuid, command_line, seed, host, version, started_at, ended_at FROM runs",
      "SELECT network, workload_key, task_name, weight FROM networks",
      "SELECT network, target, device_model, measured, tasks, measured_at FROM latencies",
      "SELECT id, uuid, run_id, workload_key, task_name, target, device_model, device_uuid, view, sketch, schedule, "
      "decisions, decision_hash, median, samples, number, raced_out, build_seconds, run_seconds, error_kind, "
      "error_stage, error_text, predicted, seed, trial, sm_mhz, memory_mhz, cpu_mhz, driver, compiler, created_at, "
      "checksum, verified, max_error, verify_text FROM records",
  };
  for (const char* query : kQueries) RETURN_IF_ERROR(db.Exec(absl::StrCat(query, " LIMIT 0")));
  return absl::OkStatus();
}

absl::Status CreateHistoryFile(const std::string& path, const std::string& unique_suffix) {
  const std::string unfinished = absl::StrCat(path, ".new-", unique_suffix);
  absl::Status status = FillNewFile(unfinished);
  if (status.ok()) status = RenameToFreeName(unfinished, path);
  if (absl::IsAlreadyExists(status)) status = absl::OkStatus();  // another process was faster
  RemoveDatabase(unfinished);
  return RenamedError(status, unfinished, path);
}

absl::Status RenameToFreeName(const std::string& from, const std::string& to) {
  if (syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    // Not every file system can do that; a hard link does not replace either.
    if (errno != EEXIST && errno != EINVAL && errno != ENOSYS)
      return SystemError(absl::StrCat("history '", to, "' cannot be created"), errno);
    if (errno == EEXIST || link(from.c_str(), to.c_str()) != 0) {
      if (errno == EEXIST)
        return absl::AlreadyExistsError(absl::StrCat("'", to, "' exists already; name a file that does not"));
      return SystemError(absl::StrCat("history '", to, "' cannot be created"), errno);
    }
    unlink(from.c_str());
  }
  SyncFolderOf(to);
  return absl::OkStatus();
}

absl::Status RenamedError(const absl::Status& status, const std::string& from, const std::string& to) {
  if (status.ok()) return status;
  std::string text(status.message());
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return absl::Status(status.code(), text);
}

void RemoveDatabase(const std::string& path) {
  for (const char* suffix : {"", "-journal", "-wal", "-shm"}) unlink((path + suffix).c_str());
}

}  // namespace diapason
