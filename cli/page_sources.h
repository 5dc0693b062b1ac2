// What the page (ui/) asks of the rest of the program.
#pragma once

#include <string>

#include "base/json.h"
#include "ui/page_server.h"

namespace diapason {

class CoordinatorServer;

// Explains records in a process of its own, which is killed when it takes too long: replaying a schedule of a history
// that somebody else has made may do anything to the process that does it.
std::function<absl::StatusOr<Json>(int64_t record)> ExplainApart(const std::string& history);

// The newest jobs, one of them with its tasks, and the fleet of a service, which outlives the sources.
PageOptions::Source JobsOf(CoordinatorServer& server);
std::function<absl::StatusOr<Json>(int64_t job)> JobOf(CoordinatorServer& server);
PageOptions::Source FleetOf(const std::string& tracker, std::shared_ptr<const ClientCredentials> credentials);

}  // namespace diapason
