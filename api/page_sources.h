// Data sources of the page (ui/): explained records, jobs and the fleet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "ui/page_server.h"

namespace diapason {

class CoordinatorServer;

namespace api {

// Explains records in a child process, which is killed when it takes too long: the history may be somebody else's, and
// replaying its schedules may crash or exhaust the process.
std::function<absl::StatusOr<Json>(int64_t record)> ExplainApart(const std::string& history);

// The newest jobs, one of them with its tasks, and the fleet of a service, which outlives the sources.
::diapason::PageOptions::Source JobsSource(CoordinatorServer& server);
std::function<absl::StatusOr<Json>(int64_t job)> JobSource(CoordinatorServer& server);
::diapason::PageOptions::Source FleetSource(const std::string& tracker,
                                            std::shared_ptr<const ClientCredentials> credentials);

}  // namespace api
}  // namespace diapason
