// The registry of workers and the queues of coordinators: what the services of proto/diapason/v1 (measure.proto,
// tracker.proto) promise, without gRPC, so that tests can drive it with a clock of their own.
//
// A queue's pending requests are kept by class: kind of target and model of device. A device with free capacity takes
// the next request of its classes from the queue of the highest priority, among equals from the one that had the least
// of its share (stride scheduling, Waldspurger and Weihl 1995: each grant moves a queue's pass on by 1 / weight).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/tracker.pb.h"

namespace diapason {

// Versions of the protocol that this program speaks, as a worker, coordinator and tracker.
inline constexpr uint32_t kLowestProtocol = 1;
inline constexpr uint32_t kHighestProtocol = 1;

struct TrackerOptions {
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds heartbeat{1000};  // told to workers
  std::chrono::milliseconds lease{15000};     // without renewal
  // Of a worker, without Report. Shorter than a lease: a silent worker is gone before its lease would be granted again.
  std::chrono::milliseconds session{10000};
  std::chrono::milliseconds queue_expiry{60000};  // without a call of its coordinator
  std::chrono::milliseconds max_wait{30000};      // of Lease and Next
  // A longer time between two Ticks is a stall of this process and not of its peers: their deadlines move on by it.
  std::chrono::milliseconds stall{2000};
  uint32_t max_pending = 4096;
  uint32_t max_request_bytes = 16 << 20;
  uint32_t max_queues = 1024;
  uint32_t max_results_per_answer = 256;
  size_t max_answer_bytes = 4 << 20;
  std::function<Clock::time_point()> now = [] { return Clock::now(); };
};

// Safe from any thread. Statuses are those that the protos list.
class Tracker {
 public:
  // The answer of a call that may wait. Called exactly once, from the thread of the call or of another one, without
  // locks.
  template <typename Response>
  using Reply = std::function<void(absl::Status, Response)>;

  explicit Tracker(TrackerOptions options = {});
  ~Tracker();
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  // For coordinators.
  absl::Status Open(const v1::OpenRequest& request, v1::OpenResponse& response);
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

  // Ends what has waited or lived too long. To be called every some tens of milliseconds.
  void Tick();
  // Answers every call that waits, and all later ones, with Unavailable.
  void Shutdown();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
