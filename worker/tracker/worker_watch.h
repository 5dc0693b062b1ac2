// What workers do with their leases, and what becomes of those that they lose: outcomes, deadlines, quarantines.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/tracker/awake_clock.h"
#include "worker/tracker/journal.h"
#include "worker/tracker/leases.h"
#include "worker/tracker/model.h"
#include "worker/tracker/quarantines.h"
#include "worker/tracker/recent_outcomes.h"
#include "worker/tracker/totals.h"
#include "worker/tracker/trials.h"
#include "worker/tracker/worker_table.h"

namespace diapason::tracker {

// Of a tracker, by reference.
struct WatchParts {
  const AwakeClock& clock;
  Journal& journal;
  WorkerTable& workers;
  Quarantines& quarantines;
  RecentOutcomes& recent;
  Leases& leases;
  const Trials& trials;
  Totals& totals;
};

class WorkerWatch {
 public:
  explicit WorkerWatch(const WatchParts& parts) : parts_(parts) {}

  // Of a lease that is over already, nothing.
  void TakeOutcome(Session& session, const v1::LeaseOutcome& outcome) const;
  // Takes back what the worker did not renew, or kept past its last moment.
  void ExpireLeases(Session& session, Clock::time_point now) const;
  void EndQuarantines(Clock::time_point now) const;
  // `counts`: whether its leases were attempts.
  void EndSession(const std::string& id, const std::string& why, bool counts) const;

 private:
  // Takes a worker's leases back, without counting them as attempts, and gives it no more for a while.
  void Quarantine(Session& session, const std::string& why) const;

  const WatchParts parts_;
};

}  // namespace diapason::tracker
