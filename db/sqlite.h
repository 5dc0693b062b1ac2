// A thin layer over SQLite's C interface: handles that close themselves, and errors as sentences for the user.
#pragma once

#include <sqlite3.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

class Database;

// A prepared statement. Parameters count from 1, columns from 0, as in SQLite. Text and blobs are copied.
class Statement {
 public:
  Statement(Statement&&) noexcept = default;
  Statement& operator=(Statement&&) noexcept = default;

  void BindInt(int parameter, int64_t value) { sqlite3_bind_int64(stmt_.get(), parameter, value); }
  void BindReal(int parameter, double value) { sqlite3_bind_double(stmt_.get(), parameter, value); }
  void BindText(int parameter, const std::string& value);
  void BindBlob(int parameter, const std::string& value);
  // Not copied: the bytes stay as they are until Run or Reset.
  void BindBorrowed(int parameter, std::string_view bytes, bool text);
  void BindNull(int parameter) { sqlite3_bind_null(stmt_.get(), parameter); }

  // True: a row is there to be read; false: done.
  absl::StatusOr<bool> Step();
  // Runs a statement that gives no rows and makes it ready for the next binding.
  absl::Status Run();
  void Reset();
  int parameters() const { return sqlite3_bind_parameter_count(stmt_.get()); }
  // SQLite's extended code of the last Step that failed.
  int code() const { return code_; }

  int64_t Int(int column) const { return sqlite3_column_int64(stmt_.get(), column); }
  double Real(int column) const { return sqlite3_column_double(stmt_.get(), column); }
  std::string Bytes(int column) const;  // text or blob
  bool IsNull(int column) const { return sqlite3_column_type(stmt_.get(), column) == SQLITE_NULL; }

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* stmt) const { sqlite3_finalize(stmt); }
  };
  Statement(Database* db, sqlite3_stmt* stmt) : db_(db), stmt_(stmt) {}
  Database* db_;
  std::unique_ptr<sqlite3_stmt, Finalize> stmt_;
  int code_ = SQLITE_OK;
};

// One connection. Not thread-safe.
class Database {
 public:
  // kReadWrite falls back to reading where the file may not be written; kImmutable ignores logs and takes no locks.
  // With kCreatePrivate only the owner may read and write the file (mode 600), also one that was made otherwise.
  enum class Access { kReadWrite, kCreate, kCreatePrivate, kImmutable };
  static constexpr char kHistory[] = "history";

  // Opens the file without reading it; errors name it as `path`, and as the `what` that it is. Triggers, views and
  // functions with side effects are switched off, so that a file made by somebody else runs nothing of its own.
  static absl::StatusOr<std::unique_ptr<Database>> Open(const std::string& path, Access access,
                                                        std::chrono::milliseconds busy_timeout,
                                                        const std::string& what = kHistory);
  // An empty one in memory, whose errors speak of `path`.
  static absl::StatusOr<std::unique_ptr<Database>> OpenInMemory(const std::string& path,
                                                                std::chrono::milliseconds busy_timeout);
  // Replaces the contents of `target` by this one's.
  absl::Status CopyTo(Database& target);

  // One or more statements without results.
  absl::Status Exec(const std::string& sql);
  absl::StatusOr<Statement> Prepare(const std::string& sql);
  // The first column of the first row.
  absl::StatusOr<int64_t> QueryInt(const std::string& sql);
  absl::StatusOr<std::string> QueryText(const std::string& sql);

  // BEGIN with retries until busy_timeout: SQLITE_BUSY can come without SQLite having waited (recovery of the log).
  absl::Status Begin(bool for_writing);
  bool in_transaction() const { return sqlite3_get_autocommit(db_.get()) == 0; }

  // The sentence for a result code of this connection.
  absl::Status Error(int code) const;

  sqlite3* handle() const { return db_.get(); }
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(sqlite3* db) const { sqlite3_close_v2(db); }
  };
  static absl::StatusOr<std::unique_ptr<Database>> OpenUri(const std::string& path, const std::string& uri, int flags,
                                                           std::chrono::milliseconds busy_timeout,
                                                           const std::string& what);
  Database(std::string path, std::string what, std::chrono::milliseconds busy_timeout)
      : path_(std::move(path)), what_(std::move(what)), busy_(busy_timeout) {}
  absl::Status Damaged(const std::string& how) const;
  std::string path_, what_;
  std::chrono::milliseconds busy_;
  std::unique_ptr<sqlite3, Close> db_;
};

// Rolls back when it goes out of scope without Commit.
class Transaction {
 public:
  static absl::StatusOr<Transaction> Begin(Database* db, bool for_writing);
  Transaction(Transaction&& other) noexcept : db_(other.db_) { other.db_ = nullptr; }
  ~Transaction();
  absl::Status Commit();

 private:
  explicit Transaction(Database* db) : db_(db) {}
  Database* db_;
};

// Sentences that more than one place gives.
absl::Status DamagedError(const std::string& path, const std::string& how);
absl::Status ReadOnlyError(const std::string& path);

}  // namespace diapason
