// Restores the state of a tracker from its store, and takes a snapshot of it.
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

// Queues, sessions and leases continue, with the full time of their deadlines. What no longer fits is left out, and a
// session whose description of its devices is not valid is erased. REQUIRES: the parts are empty.
void Restore(TrackerState state, const RestoredParts& parts);
// The state to be stored.
TrackerState Snapshot(const Queues& queues, const Sessions& sessions);

}  // namespace diapason::tracker
