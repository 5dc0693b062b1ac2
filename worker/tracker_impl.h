// The inside of Tracker, shared by its .cc files: tracker.cc (coordinators, time and the public calls),
// tracker_match.cc (which device gets which request), tracker_share.cc (one measurement for several requests),
// tracker_workers.cc, tracker_status.cc (status and metrics) and tracker_restore.cc.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "worker/id_set.h"
#include "worker/log.h"
#include "worker/tracker.h"
#include "worker/tracker_store.h"
#include "worker/tracker_writer.h"

namespace diapason {

// InvalidArgument when the facts of a worker's device, where it gives any, are not those of a device (CheckFacts).
absl::Status CheckDevice(const std::string& worker, const v1::DeviceDescription& device);

class Tracker::Impl {
 public:
  using Clock = TrackerOptions::Clock;
  using Labels = google::protobuf::Map<std::string, std::string>;

  Impl(TrackerOptions options, std::unique_ptr<TrackerStore> store)
      : options_(std::move(options)), store_(std::move(store)) {
    if (store_ != nullptr && options_.store_pause.count() > 0) {
      writer_ = std::make_unique<TrackerWriter>(*store_, options_.store_pause);
    }
    last_look_ = options_.now();
    // Not reused by a later tracker either: a clock gives the start, a counter the rest.
    next_lease_ = static_cast<uint64_t>(absl::GetCurrentTimeNanos());
    incarnation_ = next_lease_ ^ (uint64_t{random_()} << 32);
  }

  absl::Status Restore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status Open(const v1::OpenRequest& request, v1::OpenResponse& response, const std::string& owner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Submit(const v1::SubmitRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Cancel(const v1::CancelRequest& request, v1::CancelResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(const std::string& queue) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Register(const v1::RegisterRequest& request, v1::RegisterResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Report(const v1::ReportRequest& request, v1::ReportResponse& response)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(const std::string& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The page that begins after `page`, of `most_bytes` and one element more.
  absl::Status ListWorkers(const std::string& page, size_t most_bytes, v1::ListWorkersResponse& response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ListPage(const std::string& page, v1::ListWorkersResponse& response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ListWorkers(page, options_.max_answer_bytes, response);
  }
  std::vector<Metric> Metrics() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WhenStored(std::function<void()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    answers_.push_back(std::move(done));
  }
  void Tick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Shutdown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Holds the lock; what was answered meanwhile is called after it is given back and the turn's changes are stored.
  class ABSL_SCOPED_LOCKABLE Turn {
   public:
    explicit Turn(Impl& impl) ABSL_EXCLUSIVE_LOCK_FUNCTION(impl.mutex_) : impl_(impl), lock_(impl.mutex_) {}
    ~Turn() ABSL_UNLOCK_FUNCTION() {
      TrackerWriter::Answers answers = impl_.Store();
      lock_.Unlock();
      for (auto& answer : answers) answer();
    }

   private:
    Impl& impl_;
    MutexLock lock_;
  };

 private:
  struct Queue;

  // A measurement on its way.
  struct Request {
    v1::MeasureRequest message;
    Queue* queue = nullptr;
    std::string device_class;
    uint32_t attempts = 0;
    std::set<std::string> tried;                      // ids of workers that had it
    std::map<std::string, std::string> lost_runners;  // by id of the worker: what it said of its lost runner
    int64_t submitted_at = 0;                         // Unix nanoseconds
    size_t bytes = 0;
    Clock::time_point submitted;
    std::string session;                       // that has the lease
    std::optional<Clock::time_point> give_up;  // queue timeout
    uint64_t lease = 0;                        // 0: pending
    double waited = 0;                         // seconds from its submission to its (last) lease
    std::string share_key;                     // of its group; empty: it is in none
    bool parked = false;                       // in no line, since another one of its group has a lease
  };
  // Shared by its queue's table, a line of the queue, its group and a lease.
  using RequestPtr = std::shared_ptr<Request>;

  // Requests of different queues that ask for the same measurement.
  struct Group {
    std::vector<RequestPtr> members;
    RequestPtr measuring;  // the one with the lease; null: all wait in their lines
  };

  struct Queue {
    std::string id;
    uint64_t number = 0;  // in the order of opening
    v1::OpenRequest open;
    double pass = 0;  // of stride scheduling
    int32_t priority() const { return open.priority(); }
    double weight() const { return open.weight() > 0 ? open.weight() : 1; }
    const Labels& labels() const { return open.labels(); }
    const std::string& job() const { return open.job().empty() ? open.name() : open.job(); }
    std::map<uint64_t, RequestPtr> unfinished;
    std::map<std::string, std::deque<RequestPtr>> pending;  // by class; no line is empty
    IdSet done;
    std::deque<v1::MeasureResult> results;  // not acknowledged
    uint64_t next_sequence = 1;
    Tracker::Reply<v1::NextResponse> waiting;  // null: nobody waits
    Clock::time_point wait_until, last_call;
    uint32_t max_results = 0;
  };

  struct LeaseEntry {
    RequestPtr request;
    std::string device;
    Clock::time_point expires;
    uint64_t batch = 0;
    Clock::time_point last;   // moment, whatever is renewed
    double race_seconds = 0;  // best that the candidate races against; 0: none
  };

  // A device's totals at a moment.
  struct Counts {
    Clock::time_point at;
    v1::DeviceStatistics total;
  };

  struct Session {
    std::string id;
    v1::RegisterRequest worker;
    v1::WorkerStatus status;
    std::map<std::string, std::vector<std::string>> classes;  // by device: what it serves now
    std::map<uint64_t, LeaseEntry> leases;
    std::vector<uint64_t> revoked;  // not yet reported to the worker
    uint64_t batch = 0;             // of the last answer to Lease
    size_t next_bytes = 0;          // of the grants in the next one
    Tracker::Reply<v1::LeaseResponse> waiting;
    std::map<std::string, uint32_t> capacity;  // of the call that waits
    Clock::time_point wait_until, last_report;
    bool in_line = false;                                // in Impl::waiting_sessions_
    std::map<std::string, std::deque<Counts>> counts;    // by device: of the last minute or so, oldest first
    std::set<std::string> excluded;                      // devices that drift too far
    std::optional<Clock::time_point> quarantined_until;  // the whole worker, by the tracker
    std::string quarantine_text;

    const v1::DeviceDescription* Device(const std::string& name) const {
      for (const v1::DeviceDescription& device : worker.devices())
        if (device.name() == name) return &device;
      return nullptr;
    }
    // As it last said.
    v1::DeviceState StateOf(const v1::DeviceDescription& device) const {
      for (const v1::DeviceStatus& reported : status.states())
        if (reported.device() == device.name()) return reported.state();
      return device.state();
    }
    bool Offers(const std::string& device_class) const {
      return std::any_of(classes.begin(), classes.end(), [&](const auto& entry) {
        return std::find(entry.second.begin(), entry.second.end(), device_class) != entry.second.end();
      });
    }
  };

  // The time for deadlines and ages. It never goes back, and leaves out what this process slept through: longer than
  // TrackerOptions::stall without a Tick or any other look at it.
  Clock::time_point Now() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Clock::time_point real = options_.now();
    if (real - last_look_ > options_.stall) slept_ += real - last_look_;
    last_look_ = real;
    return real - slept_;
  }
  std::string NewSecret() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return shut_ ? absl::UnavailableError("the tracker is stopping") : absl::OkStatus();
  }
  absl::StatusOr<Queue*> FindQueue(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Session*> FindSession(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRequest(const v1::MeasureRequest& request) const;
  absl::Status CheckWorker(const v1::RegisterRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRoom(const Queue& queue, size_t requests, size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a queue holds changes by so much.
  void Charge(const Queue& queue, int64_t requests, int64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Queue& AddQueue(const std::string& id, const v1::OpenRequest& open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RequestPtr AddRequest(Queue& queue, const v1::MeasureRequest& message, int64_t submitted_at)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Session& AddSession(const std::string& id, const v1::RegisterRequest& worker) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Acknowledge(Queue& queue, uint64_t sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Grants pending requests of a class to the sessions that wait, one each in turn.
  void Dispatch(const std::string& device_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Grants to one session as much as it has capacity for, and its share of what waits.
  void DispatchTo(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RequestPtr TakePending(const std::string& device_class, const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grant(Session& session, const std::string& device, const RequestPtr& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False when the next answer is full, or the worker has as many leases as one may have.
  bool TakesMore(const Session& session) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return session.next_bytes <= options_.max_answer_bytes && session.leases.size() < options_.max_leases_per_worker;
  }
  // The moment past which no renewal helps a lease that is granted now.
  Clock::time_point LastMoment(const Session& session, const Request& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The device of the session with the most capacity for the class.
  std::optional<std::string> FreeDevice(const Session& session, const std::string& device_class) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetDeviceState(Session& session, const std::string& device, v1::DeviceState state)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StopServing(const std::vector<std::string>& classes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasPending(const std::string& device_class) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AnotherWorkerCould(const Request& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerLease(Session& session, absl::Status status = absl::OkStatus()) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Redeliver(Session& session, uint64_t received) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Enqueue(const RequestPtr& request, bool in_front) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Out of its line.
  void Unqueue(const RequestPtr& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Back into its line, and with it those that waited for its outcome; the lease is over.
  void Requeue(const RequestPtr& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes the request one of its group; it is parked when that is being measured.
  void Join(const RequestPtr& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The lease is for this one: the others of its group leave their lines.
  void Park(const RequestPtr& measuring) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The others wait in their lines again; false when there are none.
  bool Unpark(const RequestPtr& measured) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Out of its group.
  void Part(const RequestPtr& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Delivers an outcome of the last moments; false when there is none that speaks for the request.
  bool TakeRecent(const RequestPtr& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepRecent(const RequestPtr& request, const v1::MeasureResult& result, double race_seconds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetRecent(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Who gets the lease of a request that is cancelled; null: nobody.
  RequestPtr Heir(const RequestPtr& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOver(Session& session, uint64_t lease, const RequestPtr& heir) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the outcome of a candidate that raced against `race_seconds` is one for this request as well.
  static bool SpeaksFor(const Request& request, const v1::MeasureResult& result, double race_seconds);
  // The lease is over: another worker's turn, or the result `why` when no attempts are left.
  void Retry(const RequestPtr& request, v1::MeasureResult why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The candidate's own error, once two workers lost their runners to it.
  std::optional<v1::MeasureResult> Blame(Session& session, Request& request, const v1::MeasureResult& result) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By value, as CancelRequest: the callers take it from the tables that it is removed from. `race_seconds`: of its
  // lease. Those of its group get the result as well, where it speaks for them, and those that ask for the same soon.
  void Finish(RequestPtr request, v1::MeasureResult result, double race_seconds = 0)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Deliver(const RequestPtr& request, v1::MeasureResult result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelRequest(RequestPtr request, const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerNext(Queue& queue, absl::Status status = absl::OkStatus()) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndSession(const std::string& id, const std::string& why, bool counts) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndQueue(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ExpireLeases(Session& session, Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a worker's leases back, without counting them as attempts, and gives it no more for a while.
  void Quarantine(Session& session, const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What a device may be granted now depends on its state, its drift and its worker's quarantine.
  void RefreshDevices(Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndQuarantines(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeOutcome(Session& session, const v1::LeaseOutcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for a device again, as if it had had no lease.
  void GiveBack(const RequestPtr& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void CountOutcome(const v1::MeasureResult& result) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // An event of one measurement, with what identifies it.
  static void LogTrial(LogLevel level, const std::string& event, const Request& request,
                       std::vector<std::pair<std::string, std::string>> more);
  void NoteCounts(Session& session, const v1::DeviceStatistics& total) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::DeviceRates RatesOf(const Session& session, const std::string& device) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // By kind and model: reference times of the devices that have one, the shortest first.
  std::map<std::string, std::vector<double>> ReferenceTimes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A device's time over that of its peers; 0: not known.
  static double DriftOf(const Session& session, const v1::DeviceDescription& device,
                        const std::map<std::string, std::vector<double>>& references, size_t fewest);
  // Takes devices that drift out, and back in when they no longer do.
  void ExcludeDrifting(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<std::string, v1::ModelStatus> Models() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::WorkerStatus StatusOf(const Session& session, Clock::time_point now,
                            const std::map<std::string, std::vector<double>>& references) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static v1::QueueStatus StatusOf(const Queue& queue);

  // Stores the turn's changes, or gives them to the writer; returns the answers that may go out.
  TrackerWriter::Answers Store() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is stored of these.
  void SaveSession(const Session& session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SaveLease(const Session& session, uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static TrackerState::Lease StoredLease(const Session& session, uint64_t id, const LeaseEntry& lease);
  void SaveAttempts(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EraseLease(Session& session, uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TrackerState Snapshot() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After a write that failed: tries now and then to write everything.
  void MendStore(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TrackerOptions options_;
  Mutex mutex_;
  TrackerWriter::Answers answers_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<Queue>> queues_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::unique_ptr<Session>> sessions_ ABSL_GUARDED_BY(mutex_);
  // In the order in which they are served; may hold ones that no longer wait.
  std::deque<std::string> waiting_sessions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, size_t> devices_serving_ ABSL_GUARDED_BY(mutex_);  // by class
  uint64_t next_lease_ ABSL_GUARDED_BY(mutex_) = 1;
  mutable Clock::time_point last_look_ ABSL_GUARDED_BY(mutex_);  // of Now
  mutable Clock::duration slept_ ABSL_GUARDED_BY(mutex_){};
  Clock::time_point exclude_at_ ABSL_GUARDED_BY(mutex_){};
  std::random_device random_ ABSL_GUARDED_BY(mutex_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t granted_ ABSL_GUARDED_BY(mutex_) = 0, expired_ ABSL_GUARDED_BY(mutex_) = 0;  // leases
  uint64_t shared_ ABSL_GUARDED_BY(mutex_) = 0, bad_outcomes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> outcomes_ ABSL_GUARDED_BY(mutex_);  // by kind
  // Seconds of each stage.
  Distribution queued_ ABSL_GUARDED_BY(mutex_), build_ ABSL_GUARDED_BY(mutex_), run_ ABSL_GUARDED_BY(mutex_);
  size_t stored_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of all requests and results
  uint64_t next_queue_ ABSL_GUARDED_BY(mutex_) = 1;
  std::unordered_map<std::string, Group> groups_ ABSL_GUARDED_BY(mutex_);  // by share key; none is empty
  // Outcomes of the last moments, by share key, and their keys from the oldest on.
  struct Recent {
    v1::MeasureResult result;
    double race_seconds = 0;
    Clock::time_point until;
    std::string worker_id;
    std::set<uint64_t> had_by;  // numbers of queues
  };
  std::unordered_map<std::string, Recent> recent_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> recent_keys_ ABSL_GUARDED_BY(mutex_);
  struct Usage {
    int64_t queues = 0, requests = 0, bytes = 0;
  };
  std::map<std::string, Usage> usage_ ABSL_GUARDED_BY(mutex_);  // by owner of queues; those that have some
  // By id of the worker; those that were in quarantine within the last hour or so.
  struct Faults {
    uint32_t count = 0;
    Clock::time_point until;
    std::string why;
  };
  std::map<std::string, Faults> faults_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TrackerStore> store_ ABSL_GUARDED_BY(mutex_);    // null: nothing is kept
  std::unique_ptr<TrackerWriter> writer_ ABSL_GUARDED_BY(mutex_);  // null: each turn writes its own changes
  std::optional<Clock::time_point> mend_store_at_ ABSL_GUARDED_BY(mutex_);
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
};

inline double SecondsBetween(TrackerOptions::Clock::time_point a, TrackerOptions::Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

inline std::string KindOfTarget(const std::string& target) { return target.substr(0, target.find(' ')); }
// What a request asks for, and what a device offers (twice: for requests that name its model and for those that name
// none).
inline std::string ClassOf(const std::string& target, const std::string& model) {
  return KindOfTarget(target) + "\n" + model;
}

}  // namespace diapason
