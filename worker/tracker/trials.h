// How measurements end: with an outcome, for all that asked for the same, or with another attempt.
#pragma once

#include <string>

#include "worker/tracker/groups.h"
#include "worker/tracker/journal.h"
#include "worker/tracker/leases.h"
#include "worker/tracker/lines.h"
#include "worker/tracker/model.h"
#include "worker/tracker/queue_table.h"
#include "worker/tracker/recent_outcomes.h"
#include "worker/tracker/totals.h"
#include "worker/tracker/worker_table.h"

namespace diapason::tracker {

// Of a tracker, by reference.
struct TrialParts {
  Journal& journal;
  QueueTable& queues;
  const WorkerTable& workers;
  const Lines& lines;
  Groups& groups;
  RecentOutcomes& recent;
  Leases& leases;
  Totals& totals;
};

// Leases that it hears of are over already, but for those of requests that it cancels.
class Trials {
 public:
  explicit Trials(const TrialParts& parts) : parts_(parts) {}

  // A request that was submitted gets an outcome of the last moments, or waits in its line, or for the others of its
  // group. True when it is in its line.
  bool Begin(const RequestPtr& request) const;
  // As Begin, without outcomes of the last moments: for one of the store.
  void Resume(const RequestPtr& request) const;

  // By value, as Cancel: the callers take it from the tables that it is removed from. `race_seconds`: of its lease.
  // Those of its group get the result as well, where it speaks for them, and those that ask for the same soon.
  void Finish(RequestPtr request, v1::MeasureResult result, double race_seconds = 0) const;
  void Cancel(RequestPtr request, const std::string& reason) const;
  // Another worker's turn, or the result `why` when no attempts are left.
  void Retry(const RequestPtr& request, v1::MeasureResult why) const;
  // Waits for a device again, as if it had had no lease.
  void GiveBack(const RequestPtr& request) const;

 private:
  // Back into its line, and with it those that waited for its outcome.
  void Requeue(const RequestPtr& request) const;
  void Deliver(const RequestPtr& request, v1::MeasureResult result) const;

  const TrialParts parts_;
};

}  // namespace diapason::tracker
