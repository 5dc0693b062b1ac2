#include "db/database.h"

#include "base/check.h"

namespace diapason {

absl::StatusOr<int64_t> Database::QueryInt(const std::string& sql) {
  ASSIGN_OR_RETURN(Statement stmt, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, stmt.Step());
  return row ? stmt.Int(0) : 0;
}

absl::StatusOr<std::string> Database::QueryText(const std::string& sql) {
  ASSIGN_OR_RETURN(Statement stmt, Prepare(sql));
  ASSIGN_OR_RETURN(const bool row, stmt.Step());
  return row ? stmt.Bytes(0) : std::string();
}

absl::StatusOr<Transaction> Transaction::Begin(Database* db, bool for_writing) {
  RETURN_IF_ERROR(db->Begin(for_writing));
  return Transaction(db);
}

Transaction::~Transaction() {
  if (db_ != nullptr && db_->in_transaction()) db_->Rollback();
}

absl::Status Transaction::Commit() {
  RETURN_IF_ERROR(db_->Commit());
  db_ = nullptr;
  return absl::OkStatus();
}

}  // namespace diapason
