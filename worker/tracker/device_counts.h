// What devices have done: their rates of the last minute, and how far each is from its peers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/tracker/model.h"
#include "worker/tracker/worker_table.h"

namespace diapason::tracker {

// Takes a device's totals as of now. Changes Session::counts.
void NoteCounts(Session& session, const v1::DeviceStatistics& total, Clock::time_point now);
v1::DeviceRates RatesOf(const Session& session, const std::string& device);

// By kind and model: reference times of the devices that have one, the shortest first.
using References = std::map<std::string, std::vector<double>>;
References ReferenceTimes(const Sessions& sessions);
// A device's time over that of its peers; 0: not known, as with fewer devices of its model than `fewest`.
double DriftOf(const Session& session, const v1::DeviceDescription& device, const References& references,
               size_t fewest);

// Takes devices that drift too far out, and back in when they no longer do. Changes Session::excluded.
class DriftWatch {
 public:
  DriftWatch(const TrackerOptions& options, WorkerTable& workers) : options_(options), workers_(workers) {}

  // To be called now and then.
  void Look(Clock::time_point now);

 private:
  const TrackerOptions& options_;
  WorkerTable& workers_;
  Clock::time_point next_{};
};

}  // namespace diapason::tracker
