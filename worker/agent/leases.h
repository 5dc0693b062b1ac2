// What a worker holds of its tracker: leases, and outcomes that were not reported yet.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diapason/v1/tracker.pb.h"

namespace diapason {

struct HeldLease {
  uint64_t handle = 0;  // of the pipeline
  int device = 0;
  int64_t leased_at = 0;
  std::string job;  // and trial: what logs tell it by
  uint64_t trial = 0;
};

// Not safe from several threads.
class AgentLeases {
 public:
  // False: it is held already (received twice).
  bool Add(uint64_t lease, const HeldLease& held) { return held_.try_emplace(lease, held).second; }
  // By what the pipeline knows it. False: it is over meanwhile.
  bool SetHandle(uint64_t lease, uint64_t handle);
  // The measurement of the lease has ended on this worker: its outcome is to be reported. Nothing: the lease is over.
  std::optional<HeldLease> Finish(uint64_t lease, const std::string& worker, const v1::MeasureResult& result);
  // The lease is over and nothing is to be reported. Nothing: it was not held.
  std::optional<HeldLease> Remove(uint64_t lease);
  // All leases are over; outcomes stay.
  void RemoveAll() { held_.clear(); }
  // Outcomes of a session that is over are of no use.
  void ForgetOutcomes() { outcomes_.clear(); }

  size_t held() const { return held_.size(); }
  int HeldOn(int device) const;
  std::vector<uint64_t> all() const;
  bool has_outcomes() const { return !outcomes_.empty(); }
  // Whether everything is measured and reported.
  bool idle() const { return held_.empty() && outcomes_.empty(); }

  // Adds outcomes, the oldest first and as many as a report may have, and renewals of what is held.
  void AddTo(v1::ReportRequest& request) const;
  // The tracker has taken a report with so many outcomes; more may have come since.
  void NoteReported(int outcomes) { outcomes_.erase(outcomes_.begin(), outcomes_.begin() + outcomes); }

 private:
  std::map<uint64_t, HeldLease> held_;  // by lease
  std::deque<v1::LeaseOutcome> outcomes_;
};

}  // namespace diapason
