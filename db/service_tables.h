// The tables of services whose history is in PostgreSQL, with the state that one service needs to take over from
// another. They are in the schema of the history, have a separate version, and are created by the first service; tuners
// and builds do not use them. docs/history.md describes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "db/database.h"
#include "db/postgres.h"

namespace diapason {

// Prefix of their names: service_jobs, service_trials.
inline constexpr char kServicePrefix[] = "service_";
inline constexpr int64_t kServiceVersion = 1;

// A connection to a history with service tables; creates the tables and the history if they do not exist. Several
// processes may call it at the same time. Errors: those of OpenPostgres; FailedPrecondition: tables of a newer version.
// REQUIRES: with a fence, the tables exist.
absl::StatusOr<std::unique_ptr<Database>> OpenServiceTables(const std::string& uri, const PostgresOptions& options);

}  // namespace diapason
