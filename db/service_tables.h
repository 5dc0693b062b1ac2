// The tables of coordinator services whose history is in PostgreSQL: what one has to know to take over from another.
// They lie beside those of the history, have a version of their own, and are made by the first service; tuners and
// builds neither need nor see them. docs/history.md describes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "db/database.h"
#include "db/postgres.h"

namespace diapason {

// Their names begin with it: service_jobs, service_trials.
inline constexpr char kServicePrefix[] = "service_";
inline constexpr int64_t kServiceVersion = 1;

// A connection to a history whose service tables are there: it makes them where there are none, and the history too.
// Several processes may do so at once. Errors: those of OpenPostgres; FailedPrecondition for tables of a newer version.
// REQUIRES: with a fence, the tables are there already.
absl::StatusOr<std::unique_ptr<Database>> OpenServiceTables(const std::string& uri, const PostgresOptions& options);

}  // namespace diapason
