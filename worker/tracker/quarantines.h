// Workers that the tracker gives nothing for a while, since they gave bad outcomes or none.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "worker/tracker/options.h"

namespace diapason::tracker {

class Quarantines {
 public:
  using Clock = TrackerOptions::Clock;

  struct Fault {
    uint32_t count = 0;
    Clock::time_point until;
    std::string why;
  };

  explicit Quarantines(const TrackerOptions& options) : options_(options) {}

  // The worker's quarantine begins now: each one that comes within the hour is twice as long as the one before.
  const Fault& Begin(const std::string& worker_id, const std::string& why, Clock::time_point now);
  // Null when the worker is in none now.
  const Fault* Find(const std::string& worker_id, Clock::time_point now) const;
  // Those that ended an hour ago or more.
  void Forget(Clock::time_point now);

 private:
  const TrackerOptions& options_;
  std::map<std::string, Fault> faults_;  // by id of the worker
};

}  // namespace diapason::tracker
