#include "diapason/fleet.h"

#include <chrono>
#include <utility>

#include "api/documents.h"
#include "api/endpoint.h"
#include "api/fleet_status.h"
#include "base/check.h"
#include "worker/rpc/address.h"
#include "worker/rpc/health_check.h"

namespace diapason::api {
namespace {

FleetStatus::Device FleetDeviceOf(::diapason::FleetStatus::Device given) {
  FleetStatus::Device device;
  device.worker = std::move(given.worker);
  device.host = std::move(given.host);
  device.labels = std::move(given.labels);
  device.name = std::move(given.name);
  device.target = std::move(given.target);
  device.model = std::move(given.model);
  device.uuid = std::move(given.uuid);
  device.state = std::move(given.state);
  device.reason = std::move(given.why);
  device.leases = given.leases;
  device.runs = given.runs;
  device.trials_per_s = given.trials_per_second;
  device.utilisation = given.utilisation;
  device.error_rate = given.error_rate;
  device.drift = given.drift;
  device.excluded = given.excluded;
  device.last_seen_s = given.last_seen_seconds;
  return device;
}

}  // namespace

FleetStatus FleetStatusOf(::diapason::FleetStatus given) {
  FleetStatus status;
  for (auto& m : given.models)
    status.models.push_back({std::move(m.kind), std::move(m.model), m.total, m.free, m.pending, m.quarantined});
  for (auto& device : given.devices) status.devices.push_back(FleetDeviceOf(std::move(device)));
  for (auto& q : given.queues)
    status.queues.push_back({std::move(q.name), q.priority, q.weight, q.pending, q.leased, q.done});
  return status;
}

absl::StatusOr<FleetStatus> AskFleet(const Endpoint& tracker, double patience_seconds) {
  ASSIGN_OR_RETURN(const auto credentials, CredentialsFor("--tracker", tracker));
  ASSIGN_OR_RETURN(::diapason::FleetStatus status, AskFleetStatus(tracker.address, patience_seconds, credentials));
  return FleetStatusOf(std::move(status));
}

absl::Status CheckHealth(const Endpoint& server, double timeout_seconds) {
  RETURN_IF_ERROR(CheckAddress("--address", server.address));  // one
  ASSIGN_OR_RETURN(const auto credentials, CredentialsFor("--address", server));
  const std::chrono::milliseconds timeout(static_cast<int64_t>(1000 * timeout_seconds));
  return ::diapason::CheckHealth(server.address, timeout, credentials);
}

std::string FleetJson(const FleetStatus& status) { return DocumentText({"fleet", 2}, FleetFields(status)); }

}  // namespace diapason::api
