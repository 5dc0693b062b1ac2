// Outcomes of leases, expired leases, and quarantines of workers.
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

// References to the parts of a tracker that are needed here.
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

  // Records the outcome of a lease; ignores it if the lease has ended.
  void TakeOutcome(Session& session, const v1::LeaseOutcome& outcome) const;
  // Ends leases that the worker did not renew in time, or kept past their deadline.
  void ExpireLeases(Session& session, Clock::time_point now) const;
  void EndQuarantines(Clock::time_point now) const;
  // `counts`: whether its leases count as attempts.
  void EndSession(const std::string& id, const std::string& why, bool counts) const;

 private:
  // Ends all leases of a worker, without counting them as attempts, and grants it no more for some time.
  void Quarantine(Session& session, const std::string& why) const;

  const WatchParts parts_;
};

}  // namespace diapason::tracker
