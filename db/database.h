// What the history needs of a database: one interface, with SQLite (db/sqlite.h) and PostgreSQL (db/postgres.h) behind
// it. Statements are SQL that both accept; errors are sentences for the user.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/check.h"

namespace diapason {

// A prepared statement. Parameters (`?`, or `?1` by number) count from 1, columns from 0. Text and blobs are copied.
class Statement {
 public:
  // The constraint for which the last Step failed.
  enum class Broken { kNone, kUnique, kForeignKey };

  // What a database does for it.
  class Impl {
   public:
    virtual ~Impl() = default;
    virtual void BindInt(int parameter, int64_t value) = 0;
    virtual void BindReal(int parameter, double value) = 0;
    virtual void BindBytes(int parameter, std::string_view bytes, bool text, bool borrowed) = 0;
    virtual void BindNull(int parameter) = 0;
    virtual absl::StatusOr<bool> Step() = 0;
    virtual void Reset() = 0;
    virtual int parameters() const = 0;
    virtual Broken broken() const = 0;
    virtual std::string why() const = 0;
    virtual int64_t Int(int column) const = 0;
    virtual double Real(int column) const = 0;
    virtual std::string Bytes(int column) const = 0;
    virtual bool IsNull(int column) const = 0;
  };
  explicit Statement(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

  void BindInt(int parameter, int64_t value) { impl_->BindInt(parameter, value); }
  void BindReal(int parameter, double value) { impl_->BindReal(parameter, value); }
  void BindText(int parameter, const std::string& value) { impl_->BindBytes(parameter, value, true, false); }
  void BindBlob(int parameter, const std::string& value) { impl_->BindBytes(parameter, value, false, false); }
  // Not copied: the bytes stay as they are until Run or Reset.
  void BindBorrowed(int parameter, std::string_view bytes, bool text) {
    impl_->BindBytes(parameter, bytes, text, true);
  }
  void BindNull(int parameter) { impl_->BindNull(parameter); }

  // True: a row is there to be read; false: done.
  absl::StatusOr<bool> Step() { return impl_->Step(); }
  // Runs a statement that gives no rows and makes it ready for the next binding.
  absl::Status Run() {
    absl::StatusOr<bool> row = Step();
    Reset();
    return row.status();
  }
  // The same for one that gives a row with a number: that number.
  absl::StatusOr<int64_t> RunForInt() {
    absl::StatusOr<bool> row = Step();
    const int64_t number = row.ok() && *row ? Int(0) : 0;
    Reset();
    if (!row.ok()) return row.status();
    return number;
  }
  void Reset() { impl_->Reset(); }
  int parameters() const { return impl_->parameters(); }
  Broken broken() const { return impl_->broken(); }
  // The database's own words for the failure of the last Step.
  std::string why() const { return impl_->why(); }

  int64_t Int(int column) const { return impl_->Int(column); }
  double Real(int column) const { return impl_->Real(column); }
  std::string Bytes(int column) const { return impl_->Bytes(column); }  // text or blob
  bool IsNull(int column) const { return impl_->IsNull(column); }

 private:
  std::unique_ptr<Impl> impl_;
};

class Database;

// Whether this process may still write to a database that several share, of which one at a time writes
// (db/service_lease.h).
// Safe from any thread.
class WriteFence {
 public:
  virtual ~WriteFence() = default;
  // By this process's clock alone; Unavailable with the reason.
  virtual absl::Status Holds() const = 0;
  // In a transaction that writes, when all that others have written is seen. Unavailable with the reason.
  virtual absl::Status Check(Database& db) const = 0;
  // How long what was begun may stand still: the server rolls it back then.
  virtual std::chrono::milliseconds lasts() const = 0;
};

// One connection. Not thread-safe.
class Database {
 public:
  virtual ~Database() = default;

  // One or more statements without results.
  virtual absl::Status Exec(const std::string& sql) = 0;
  virtual absl::StatusOr<Statement> Prepare(const std::string& sql) = 0;
  // The first column of the first row.
  absl::StatusOr<int64_t> QueryInt(const std::string& sql);
  absl::StatusOr<std::string> QueryText(const std::string& sql);

  // Waits for other writers where it is for writing. Ids that are given within are above all that others can see.
  virtual absl::Status Begin(bool for_writing) = 0;
  virtual absl::Status Commit() { return Exec("COMMIT"); }
  virtual void Rollback() { Exec("ROLLBACK").IgnoreError(); }
  virtual bool in_transaction() const = 0;
  // Whether the connection was lost since the last Begin: the transaction may or may not have been committed, and the
  // next Begin connects again.
  virtual bool lost() const { return false; }

  // Rows that the last statement changed.
  virtual int64_t changes() const = 0;
  virtual absl::StatusOr<int64_t> SchemaVersion() = 0;
  // Differs from its last value when another connection has changed the database since.
  virtual absl::StatusOr<int64_t> ChangeCounter() = 0;
  // Bytes on the disk.
  virtual absl::StatusOr<int64_t> Bytes() = 0;
  // Gives the room of deleted rows back. Not in a transaction.
  virtual absl::Status Compact() = 0;
  // Calls `problem` with a sentence for each thing that is wrong with its storage or its foreign keys.
  virtual void CheckStorage(size_t most, const std::function<void(const std::string&)>& problem) = 0;

  // The sentence for a history of which a part cannot be read.
  virtual absl::Status Damaged(const std::string& how) const = 0;
  // What messages call it: a path, or a URI without its password.
  const std::string& path() const { return path_; }

 protected:
  explicit Database(std::string path) : path_(std::move(path)) {}
  const std::string path_;
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

// What `work` returns; again, with `true`, when the connection was lost in it: then it may have been done already.
template <typename Work>
auto RepeatLost(const Database& db, const Work& work) -> decltype(work(false)) {
  constexpr int kAttempts = 3;
  auto result = work(/*again=*/false);
  for (int attempt = 0; attempt < kAttempts && !result.ok() && db.lost(); ++attempt) result = work(/*again=*/true);
  return result;
}

// What `work` returns of one snapshot of the database, which it reads; RepeatLost.
template <typename Work>
auto ReadTransaction(Database& db, const Work& work) -> decltype(work()) {
  return RepeatLost(db, [&](bool) -> decltype(work()) {
    ASSIGN_OR_RETURN(const Transaction snapshot, Transaction::Begin(&db, /*for_writing=*/false));
    return work();
  });
}

// What `change` returns, a Status or StatusOr; commits what it writes, unless that is an error. RepeatLost.
template <typename Change>
auto WriteTransaction(Database& db, const Change& change) -> decltype(change(false)) {
  return RepeatLost(db, [&](bool again) -> decltype(change(false)) {
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(&db, /*for_writing=*/true));
    auto result = change(again);
    if (!result.ok()) return result;
    RETURN_IF_ERROR(transaction.Commit());
    return result;
  });
}

}  // namespace diapason
