// Why a job of a service does not get on, for `submit --wait` and `jobs watch`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "worker/fleet_status.h"

namespace diapason {

// What is known of a job that waits.
struct WaitingJob {
  bool queued = false;                        // the service has not begun it
  int64_t running_jobs = 0;                   // of the service
  std::string target;                         // as it was submitted
  std::string device;                         // the model that is asked for; empty: any
  std::map<std::string, std::string> labels;  // that workers are to carry
  std::string tracker;                        // where workers of the service register
};

// One sentence with what to do about it. Nothing: a device is there, so that it will get on. `fleet` absent: the
// tracker was not to be asked.
std::optional<std::string> WhyWaiting(const WaitingJob& job, const std::optional<FleetStatus>& fleet);

}  // namespace diapason
