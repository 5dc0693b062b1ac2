// The life of a request between its submission and its result: waiting, further attempts, and the result, which every
// request for the same measurement gets.
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

// Not thread-safe. Leases of a request have ended before its methods are called, except for Cancel.
class Trials {
 public:
  explicit Trials(const TrialParts& parts) : parts_(parts) {}

  // A request was submitted. It gets a recent result of the same measurement, waits for the result of one that runs, or
  // is queued. Returns whether it is queued.
  bool Begin(const RequestPtr& request) const;
  // As Begin for a request from the store, which gets no recent result.
  void Resume(const RequestPtr& request) const;

  // `request` is taken by value, here and by Cancel, since it is removed from the callers' tables. `race_seconds`: of
  // its lease. Requests of its group, and those for the same measurement that come soon after, get the result too if it
  // is valid for them.
  void Finish(RequestPtr request, v1::MeasureResult result, double race_seconds = 0) const;
  void Cancel(RequestPtr request, const std::string& reason) const;
  // Queues the request for another worker; `why` becomes its result if no attempts are left.
  void Retry(const RequestPtr& request, v1::MeasureResult why) const;
  // Queues the request again, as if it had had no lease.
  void GiveBack(const RequestPtr& request) const;

 private:
  // Queues the request again, and the requests that waited for its result.
  void Requeue(const RequestPtr& request) const;
  void Deliver(const RequestPtr& request, v1::MeasureResult result) const;

  const TrialParts parts_;
};

}  // namespace diapason::tracker
