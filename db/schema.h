// The tables of a history and the way from each version to the next; docs/history.md describes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "db/database.h"
#include "db/history.h"

namespace diapason {

// "Dpsn", in the header of every history, so that file(1) and we know them.
inline constexpr int64_t kApplicationId = 0x4470736e;
// Version of the tables, in user_version.
inline constexpr int64_t kSchemaVersion = 5;

// FailedPrecondition when the database is no history or is of a newer version; DataLoss when it cannot be read.
absl::Status CheckIdentity(Database& db);

// Brings an empty database or a history of an older version to kSchemaVersion, in one transaction: other processes see
// the old version or the new one. REQUIRES: the database is empty or passed CheckIdentity.
absl::Status Migrate(Database& db);

// The refusal of a history of a later version.
absl::Status NewerVersion(const std::string& path, int64_t version);

// DataLoss when a table or column is missing.
absl::Status CheckTables(Database& db);

// Makes a complete empty history at `path`, unless there is a file already: then that one stays. A reader never sees
// half of it, since it gets its name when it is complete.
absl::Status CreateHistoryFile(const std::string& path, const std::string& unique_suffix);

// Gives `from` the name `to`; AlreadyExists when that name is taken, and both stay as they are.
absl::Status RenameToFreeName(const std::string& from, const std::string& to);

// A status that speaks of the name a file gets, where it speaks of the one under which it is made.
absl::Status RenamedError(const absl::Status& status, const std::string& from, const std::string& to);

// Removes a database and what SQLite keeps beside it.
void RemoveDatabase(const std::string& path);

}  // namespace diapason
