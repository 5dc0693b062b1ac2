// Leases: which device gets which request, and when the worker learns of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/tracker/awake_clock.h"
#include "worker/tracker/groups.h"
#include "worker/tracker/journal.h"
#include "worker/tracker/lines.h"
#include "worker/tracker/model.h"
#include "worker/tracker/totals.h"
#include "worker/tracker/worker_table.h"

namespace diapason::tracker {

// Of a tracker, by reference.
struct LeaseParts {
  const TrackerOptions& options;
  const AwakeClock& clock;
  Journal& journal;
  const WorkerTable& workers;
  const Lines& lines;
  Groups& groups;
  Totals& totals;
};

// Changes Session::leases and what a session waits for.
class Leases {
 public:
  // `first`: number of the first lease, above all of earlier trackers.
  Leases(const LeaseParts& parts, uint64_t first) : parts_(parts), next_(first) {}

  // A worker's call: answers when there is something for it, or the time is over.
  void Wait(Session& session, const v1::LeaseRequest& request, Tracker::Reply<v1::LeaseResponse> reply);
  // Answers the call of the worker, with all that was granted and revoked meanwhile. Nothing if it does not wait.
  void Answer(Session& session, absl::Status status = absl::OkStatus());
  // Out of those that wait for leases.
  void Forget(const Session& session);

  // Grants pending requests of a class to the sessions that wait, one each in turn.
  void Dispatch(const std::string& device_class);
  // Grants to one session as much as it has capacity for, and its share of what waits.
  void DispatchTo(Session& session);

  // No lease will have this number or one below.
  void Skip(uint64_t id) { next_ = std::max(next_, id + 1); }
  // One of the store.
  void Restore(const TrackerState::Lease& stored, Session& session, const RequestPtr& request);
  void Erase(Session& session, uint64_t id);
  // The worker keeps the program for another request of the group.
  void HandOver(Session& session, uint64_t id, const RequestPtr& heir);
  void Renew(LeaseEntry& lease) const { lease.expires = parts_.clock.Now() + parts_.options.lease; }

 private:
  RequestPtr TakePending(const std::string& device_class, const Session& session) const;
  void Grant(Session& session, const std::string& device, const RequestPtr& request);
  // False when the next answer is full, or the worker has as many leases as one may have.
  bool TakesMore(const Session& session) const;
  // The moment past which no renewal helps a lease that is granted now.
  Clock::time_point LastMoment(const Session& session, const Request& request) const;
  // What was granted by an answer that did not arrive goes into the next one, or, when that is full, into those after
  // it.
  void Redeliver(Session& session, uint64_t received) const;

  const LeaseParts parts_;
  uint64_t next_;
  // Sessions in the order in which they are served; may hold ones that no longer wait.
  std::deque<std::string> waiting_;
};

// The device of the session with the most capacity for the class.
std::optional<std::string> FreeDevice(const Session& session, const std::string& device_class);

}  // namespace diapason::tracker
