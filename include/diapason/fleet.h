// The devices and queues of a tracker, and whether a server answers (docs/fleet.md). See model.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

// The state of a fleet at one moment. Rates and shares (0 to 1) are those of the last minute.
struct FleetStatus {
  // The devices of one model, and the requests for them. `model` empty: requests that any model of the kind may take.
  struct Model {
    std::string kind, model;  // "cuda", "NVIDIA H200"
    int64_t total = 0, free = 0, pending = 0, quarantined = 0;
  };
  struct Device {
    std::string worker, host;
    std::map<std::string, std::string> labels;
    std::string name;                 // "cuda:0"
    std::string target, model, uuid;  // `uuid` empty: it has none
    std::string state;                // "ready", "restarting", "quarantined"
    std::string reason;               // unless it is ready: why
    int64_t leases = 0, runs = 0;
    double trials_per_s = 0, utilisation = 0, error_rate = 0;
    double drift = 0;        // time of the reference kernel over the median of its peers'; 0: not known
    bool excluded = false;   // it drifts so far that it measures nothing
    double last_seen_s = 0;  // age of the worker's last report

    // Whether its reference-kernel time differs by more than 10% from that of other devices of its model.
    bool drifts() const { return drift > 0 && (drift > 1.1 || drift < 1 / 1.1); }
  };
  // A tuner or a job of a service.
  struct Queue {
    std::string name;
    int64_t priority = 0;
    double weight = 1;
    int64_t pending = 0, leased = 0, done = 0;  // requests
  };
  std::vector<Model> models;    // by kind and model
  std::vector<Device> devices;  // by worker
  std::vector<Queue> queues;
};

// Asks a tracker; a service that has none elsewhere is one. A call that is not answered is repeated until
// `patience_seconds` have passed. Unavailable, with the address: no answer; PermissionDenied: what the token may not
// do, or the tracker is on another host and neither TLS nor `insecure` is given.
absl::StatusOr<FleetStatus> AskFleet(const Endpoint& tracker, double patience_seconds = 5);

// The document that `diapason fleet status --json` prints (docs/schema/fleet.json).
std::string FleetJson(const FleetStatus& status);

// OK if the tracker or service at the one address is serving; needs no token. Unavailable: it answers otherwise, or not
// within `timeout_seconds`.
absl::Status CheckHealth(const Endpoint& server, double timeout_seconds = 3);

}  // namespace diapason::api
