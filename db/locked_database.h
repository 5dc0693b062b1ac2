// A database that several threads use in turn, one transaction at a time.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "base/mutex.h"
#include "db/database.h"

namespace diapason {

// Safe from any thread.
class LockedDatabase {
 public:
  explicit LockedDatabase(std::unique_ptr<Database> database) : db(std::move(database)) {}

  // ReadTransaction (db/database.h) of `read(database)`.
  template <typename Read>
  std::invoke_result_t<const Read&, Database&> Reading(const Read& read) ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    Database& database = *db;
    return ReadTransaction(database, [&] { return read(database); });
  }

  // WriteTransaction of `change(database, again)`: `again` says that the connection was lost before, so that some or
  // all of it may be stored already.
  template <typename Change>
  std::invoke_result_t<const Change&, Database&, bool> Writing(const Change& change) ABSL_LOCKS_EXCLUDED(mu) {
    MutexLock lock(mu);
    Database& database = *db;
    return WriteTransaction(database, [&](bool again) { return change(database, again); });
  }

  // For work that is not one transaction.
  Mutex mu;
  const std::unique_ptr<Database> db ABSL_PT_GUARDED_BY(mu);
};

}  // namespace diapason
