// PostgreSQL as a Database, through libpq: a history that many hosts write to. The tables and what differs from a file
// are in docs/history.md.
//
// PGPASSWORD, ~/.pgpass and service files work as for any program of libpq. No message and no name that is given here
// contains a password.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/database.h"
#include "db/history.h"

namespace diapason {

// The URI without passwords: what messages and records show (db/history_name.h).
std::string PostgresName(const std::string& uri);

struct PostgresOptions {
  std::chrono::milliseconds busy_timeout{30000};  // how long to wait for other writers, and for a server that is away
  std::chrono::milliseconds idle_timeout{0};      // of a transaction in which this process does nothing; 0: for ever
  std::shared_ptr<const WriteFence> fence = nullptr;  // asked at the begin of every transaction that writes
};

// Connects to a history; with kCreate its tables are made where the schema that the connection's search_path names
// first has none. Several processes may do so at once. InvalidArgument: the URI does not parse. Unavailable: no server.
// PermissionDenied: wrong password, or a role that may not write. NotFound: no such database, or no tables in it.
// FailedPrecondition: tables of another program, or of a newer version.
absl::StatusOr<std::unique_ptr<Database>> OpenPostgres(const std::string& uri, HistoryMode mode,
                                                       const PostgresOptions& options = {});

}  // namespace diapason
