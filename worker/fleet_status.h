// How a fleet is: what a tracker tells of its workers, in plain structs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/rpc/security.h"

namespace diapason {

struct FleetStatus {
  // Devices of one model and the requests for them. Model empty: requests that any model of the kind may take.
  struct Model {
    std::string kind, model;
    int64_t total = 0, free = 0, pending = 0, quarantined = 0;
  };
  struct Device {
    std::string worker, host;
    std::map<std::string, std::string> labels;
    std::string name, target, model, uuid;
    std::string state;  // "ready", "restarting", "quarantined"
    std::string why;    // when not ready
    int64_t leases = 0, runs = 0;
    double trials_per_second = 0, utilisation = 0, error_rate = 0;  // of the last minute; shares are 0 to 1
    double drift = 0;              // time of the reference kernel over the peers' median; 0: not known
    bool excluded = false;         // it drifts so far that it gets nothing to measure
    double last_seen_seconds = 0;  // age of the worker's last report
  };
  struct Queue {
    std::string name;
    int64_t priority = 0;
    double weight = 1;
    int64_t pending = 0, leased = 0, done = 0;
  };
  std::vector<Model> models;    // by kind and model
  std::vector<Device> devices;  // by worker
  std::vector<Queue> queues;
};

// Unavailable, naming the address, when the tracker does not answer for so long.
absl::StatusOr<FleetStatus> AskFleetStatus(const std::string& tracker, double wait_seconds,
                                           const std::shared_ptr<const ClientCredentials>& credentials = nullptr);

}  // namespace diapason
