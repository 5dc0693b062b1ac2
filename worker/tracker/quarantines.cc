#include "worker/tracker/quarantines.h"

#include <algorithm>
#include <chrono>

namespace diapason::tracker {
namespace {

// A worker that was in quarantine is forgotten after so long, and the oldest when there are too many.
constexpr std::chrono::hours kFaultsKept{1};
constexpr size_t kMostFaults = 4096;

}  // namespace

const Quarantines::Fault& Quarantines::Begin(const std::string& worker_id, const std::string& why,
                                             Clock::time_point now) {
  if (faults_.size() >= kMostFaults && !faults_.contains(worker_id)) faults_.erase(faults_.begin());
  Fault& fault = faults_[worker_id];
  auto time = options_.first_quarantine;
  for (uint32_t i = 0; i < fault.count && time < options_.longest_quarantine; ++i) time *= 2;
  ++fault.count;
  fault.until = now + std::min(time, options_.longest_quarantine);
  fault.why = why;
  return fault;
}

const Quarantines::Fault* Quarantines::Find(const std::string& worker_id, Clock::time_point now) const {
  const auto found = faults_.find(worker_id);
  return found == faults_.end() || found->second.until <= now ? nullptr : &found->second;
}

void Quarantines::Forget(Clock::time_point now) {
  std::erase_if(faults_, [&](const auto& entry) { return entry.second.until + kFaultsKept < now; });
}

}  // namespace diapason::tracker
