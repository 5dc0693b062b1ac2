// How a tracker resumes from what an earlier one stored.
#pragma once

#include "worker/tracker/journal.h"
#include "worker/tracker/leases.h"
#include "worker/tracker/model.h"
#include "worker/tracker/quarantines.h"
#include "worker/tracker/queue_table.h"
#include "worker/tracker/trials.h"
#include "worker/tracker/worker_table.h"

namespace diapason::tracker {

// Of a tracker, by reference.
struct RestoredParts {
  Journal& journal;
  QueueTable& queues;
  WorkerTable& workers;
  Leases& leases;
  const Trials& trials;
};

// Queues, sessions and leases live on, with the full time of their deadlines. What fits no longer is left out, and a
// session whose devices cannot be as they say is erased. REQUIRES: the parts are empty.
void Restore(TrackerState state, const RestoredParts& parts);
// All that is to be stored.
TrackerState Snapshot(const Queues& queues, const Sessions& sessions);

}  // namespace diapason::tracker
