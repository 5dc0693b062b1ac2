// Why a job of a service makes no progress, for `submit --wait` and `jobs watch`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "diapason/fleet.h"

namespace diapason {

// A job without progress.
struct WaitingJob {
  bool queued = false;                        // the service has not started it
  int64_t running_jobs = 0;                   // of the service
  std::string target;                         // as it was submitted
  std::string device;                         // required model; empty: any
  std::map<std::string, std::string> labels;  // required labels of workers
  std::string tracker;                        // where workers of the service register
};

// The reason and what to do about it, in one sentence. Nothing: there is a device, so the job will continue. `fleet` is
// absent if the tracker could not be asked.
std::optional<std::string> WhyWaiting(const WaitingJob& job, const std::optional<api::FleetStatus>& fleet);

}  // namespace diapason
