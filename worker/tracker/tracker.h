// The registry of workers and the queues of coordinators: implements the services of proto/diapason/v1 (measure.proto,
// tracker.proto) without gRPC, so that tests can drive it with a fake clock.
//
// A queue's pending requests are kept by class: kind of target and model of device. A device with free capacity takes
// the next request of its classes from the queue of the highest priority, among equals from the one that had the least
// of its share (stride scheduling, Waldspurger and Weihl 1995: each grant moves a queue's pass on by 1 / weight).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"
#include "worker/rpc/metrics.h"
#include "worker/tracker/options.h"

namespace diapason {

class TrackerStore;

// Versions of the protocol that this program speaks, as a worker, coordinator and tracker.
inline constexpr uint32_t kLowestProtocol = 1;
inline constexpr uint32_t kHighestProtocol = 1;

// Picks the version to speak. FailedPrecondition, with both ranges, when there is no common one. `what`: who we are,
// "tracker".
absl::Status CompareProtocols(const std::string& what, const v1::ProtocolRange& theirs, uint32_t& protocol);

// Safe from any thread. Statuses are those that the protos list.
class Tracker {
 public:
  // The callback of a call that may wait. Called exactly once, from any thread, without locks, after everything that
  // the response depends on is in the store.
  template <typename Response>
  using Reply = std::function<void(absl::Status, Response)>;

  // With a store, what it holds is taken up by Restore and what happens is written to it.
  explicit Tracker(TrackerOptions options = {}, std::unique_ptr<TrackerStore> store = nullptr);
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // Resumes from the store: queues, sessions and leases continue, with the full time of their deadlines. DataLoss if
  // the store cannot be read. REQUIRES: no other call was made.
  absl::Status Restore();

  // Calls `done`, from any thread and without locks, when the effects of all earlier calls are in the store. A response
  // of a call without Reply must not be sent before, since a tracker that is killed until then forgets the call.
  void WhenStored(std::function<void()> done);

  // For coordinators.
  // `owner`: whose token it is, for the quotas; empty: no quota.
  absl::Status Open(const v1::OpenRequest& request, v1::OpenResponse& response, const std::string& owner = "");
  absl::Status Submit(const v1::SubmitRequest& request, v1::SubmitResponse& response);
  void Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply);
  absl::Status Cancel(const v1::CancelRequest& request, v1::CancelResponse& response);
  absl::Status Close(const v1::CloseRequest& request, v1::CloseResponse& response);

  // For workers.
  absl::Status Register(const v1::RegisterRequest& request, v1::RegisterResponse& response);
  void Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply);
  absl::Status Report(const v1::ReportRequest& request, v1::ReportResponse& response);
  absl::Status Leave(const v1::LeaveRequest& request, v1::LeaveResponse& response);
  absl::Status ListWorkers(const v1::ListWorkersRequest& request, v1::ListWorkersResponse& response);

  std::vector<Metric> Metrics();

  // Ends calls, leases and sessions whose time is over. To be called every few tens of milliseconds.
  void Tick();
  // Answers every waiting call, and all later ones, with Unavailable.
  void Shutdown();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
