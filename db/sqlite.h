// SQLite as a Database: a thin layer over its C interface, with owning handles.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"

namespace diapason {

// One connection to a file. Not thread-safe.
class SqliteDatabase final : public Database {
 public:
  // kReadWrite falls back to reading if the file cannot be written; kImmutable ignores logs and takes no locks.
  // kCreatePrivate sets the mode of a new or existing file to 600.
  enum class Access { kReadWrite, kCreate, kCreatePrivate, kImmutable };
  static constexpr char kHistory[] = "history";

  // Opens the file without reading it. Error messages name it as `what` and `path`. Triggers, views and functions with
  // side effects are disabled, so that a file from an untrusted source cannot execute anything.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path, Access access,
                                                              std::chrono::milliseconds busy_timeout,
                                                              const std::string& what = kHistory);
  // An empty database in memory, whose error messages name `path`.
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenInMemory(const std::string& path,
                                                                      std::chrono::milliseconds busy_timeout);
  // Replaces the contents of `target` by this one's.
  absl::Status CopyTo(SqliteDatabase& target);

  absl::Status Exec(const std::string& sql) override;
  absl::StatusOr<Statement> Prepare(const std::string& sql) override;
  // BEGIN, retried until busy_timeout, because SQLite may return SQLITE_BUSY without waiting (recovery of the log).
  absl::Status Begin(bool for_writing) override;
  bool in_transaction() const override { return sqlite3_get_autocommit(db_.get()) == 0; }
  int64_t changes() const override { return sqlite3_changes64(db_.get()); }
  int64_t last_id() const { return sqlite3_last_insert_rowid(db_.get()); }
  absl::StatusOr<int64_t> SchemaVersion() override { return QueryInt("PRAGMA user_version"); }
  absl::StatusOr<int64_t> ChangeCounter() override { return QueryInt("PRAGMA data_version"); }
  absl::StatusOr<int64_t> Bytes() override;
  absl::Status Compact() override;
  void CheckStorage(size_t most, const std::function<void(const std::string&)>& problem) override;
  absl::Status Damaged(const std::string& how) const override;

  // For who saves what can still be read: errors do not advise to do so.
  void set_salvaging() { salvaging_ = true; }
  // Reads a file that ends before its last page, too, as far as it goes; else SQLite refuses it as a whole. Nothing can
  // be written then.
  absl::Status ReadCutFile();

  // The error for a result code of this connection.
  absl::Status Error(int code) const;
  sqlite3* handle() const { return db_.get(); }

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  static absl::StatusOr<std::unique_ptr<SqliteDatabase>> OpenUri(const std::string& path, const std::string& uri,
                                                                 int flags, std::chrono::milliseconds busy_timeout,
                                                                 const std::string& what);
  SqliteDatabase(std::string path, std::string what, std::chrono::milliseconds busy_timeout)
      : Database(std::move(path)), what_(std::move(what)), busy_(busy_timeout) {}
  std::string what_;
  std::chrono::milliseconds busy_;
  bool salvaging_ = false;
  std::unique_ptr<sqlite3, Close> db_;
};

// Errors that several sources return.
absl::Status DamagedError(const std::string& path, const std::string& how);
absl::Status ReadOnlyError(const std::string& path);

}  // namespace diapason
