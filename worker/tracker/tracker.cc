#include "worker/tracker/tracker.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/mutex.h"
#include "worker/rpc/log.h"
#include "worker/rpc/message_limits.h"
#include "worker/tracker/awake_clock.h"
#include "worker/tracker/device_counts.h"
#include "worker/tracker/fleet_view.h"
#include "worker/tracker/groups.h"
#include "worker/tracker/journal.h"
#include "worker/tracker/leases.h"
#include "worker/tracker/lines.h"
#include "worker/tracker/quarantines.h"
#include "worker/tracker/queue_table.h"
#include "worker/tracker/recent_outcomes.h"
#include "worker/tracker/restore.h"
#include "worker/tracker/trials.h"
#include "worker/tracker/worker_table.h"
#include "worker/tracker/worker_watch.h"

namespace diapason {
namespace {

using tracker::Clock;
using tracker::Queue;
using tracker::RequestPtr;
using tracker::Session;

constexpr double kLeastWeight = 1e-6;

std::string Range(uint32_t low, uint32_t high) {
  return low == high ? std::to_string(low) : std::to_string(low) + " to " + std::to_string(high);
}

}  // namespace

absl::Status CompareProtocols(const std::string& what, const v1::ProtocolRange& theirs, uint32_t& protocol) {
  protocol = std::min(theirs.high(), kHighestProtocol);
  if (protocol >= std::max(theirs.low(), kLowestProtocol)) return absl::OkStatus();
  return absl::FailedPreconditionError("this " + what + " speaks protocol " + Range(kLowestProtocol, kHighestProtocol) +
                                       " and the caller " + Range(theirs.low(), theirs.high()) +
                                       ": install the same version of diapason on both");
}

// Answers calls by the parts of worker/tracker, all of which are behind its one lock.
class Tracker::Impl {
 public:
  Impl(TrackerOptions options, std::unique_ptr<TrackerStore> store)
      : options_(std::move(options)),
        // Not reused by a later tracker either: a clock gives the start, a counter the rest.
        first_lease_(static_cast<uint64_t>(absl::GetCurrentTimeNanos())),
        incarnation_(first_lease_ ^ (uint64_t{random_()} << 32)),
        journal_(std::move(store), options_.store_pause) {}

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
  absl::Status ListPage(const std::string& page, v1::ListWorkersResponse& response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return view_.List(page, options_.max_answer_bytes, response);
  }
  std::vector<Metric> Metrics() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return view_.Metrics(); }
  void WhenStored(std::function<void()> done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    journal_.Answer(std::move(done));
  }
  void Tick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Shutdown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Holds the lock; what was answered meanwhile is called after it is given back and the turn's changes are stored.
  class ABSL_SCOPED_LOCKABLE Turn {
   public:
    explicit Turn(Impl& impl) ABSL_EXCLUSIVE_LOCK_FUNCTION(impl.mutex_) : impl_(impl), lock_(impl.mutex_) {}
    ~Turn() ABSL_UNLOCK_FUNCTION() {
      TrackerWriter::Answers answers = impl_.EndTurn();
      lock_.Unlock();
      for (auto& answer : answers) answer();
    }

   private:
    Impl& impl_;
    MutexLock lock_;
  };

 private:
  TrackerWriter::Answers EndTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return journal_.EndTurn(); }
  std::string NewSecret() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Running() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return shut_ ? absl::UnavailableError("the tracker is stopping") : absl::OkStatus();
  }
  absl::StatusOr<Queue*> FindQueue(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Session*> FindSession(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TickSessions(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TickQueues(Clock::time_point now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TrackerOptions options_;
  Mutex mutex_;
  std::random_device random_ ABSL_GUARDED_BY(mutex_);
  const uint64_t first_lease_, incarnation_;
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  // Each knows those above it alone.
  tracker::AwakeClock clock_ ABSL_GUARDED_BY(mutex_){options_};
  tracker::Journal journal_ ABSL_GUARDED_BY(mutex_);
  tracker::Totals totals_ ABSL_GUARDED_BY(mutex_);
  tracker::QueueTable queues_ ABSL_GUARDED_BY(mutex_){options_, clock_, journal_, incarnation_};
  tracker::Lines lines_ ABSL_GUARDED_BY(mutex_){queues_.queues()};
  tracker::WorkerTable workers_ ABSL_GUARDED_BY(mutex_){clock_};
  tracker::Quarantines quarantines_ ABSL_GUARDED_BY(mutex_){options_};
  tracker::Groups groups_ ABSL_GUARDED_BY(mutex_){lines_, journal_};
  tracker::RecentOutcomes recent_ ABSL_GUARDED_BY(mutex_){options_, clock_};
  tracker::Leases leases_ ABSL_GUARDED_BY(mutex_){{options_, clock_, journal_, workers_, lines_, groups_, totals_},
                                                  first_lease_};
  tracker::Trials trials_ ABSL_GUARDED_BY(mutex_){
      {journal_, queues_, workers_, lines_, groups_, recent_, leases_, totals_}};
  tracker::WorkerWatch watch_ ABSL_GUARDED_BY(mutex_){
      {clock_, journal_, workers_, quarantines_, recent_, leases_, trials_, totals_}};
  tracker::DriftWatch drift_ ABSL_GUARDED_BY(mutex_){options_, workers_};
  tracker::FleetView view_ ABSL_GUARDED_BY(mutex_){clock_, queues_, workers_, totals_};
};

std::string Tracker::Impl::NewSecret() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string secret;
  for (int i = 0; i < 4; ++i) {
    uint32_t bits = random_();
    for (int d = 0; d < 8; ++d) secret += kDigits[bits >> (4 * d) & 15];
  }
  return secret;
}

absl::StatusOr<Queue*> Tracker::Impl::FindQueue(const std::string& id) {
  RETURN_IF_ERROR(Running());
  Queue* found = queues_.Find(id);
  if (found == nullptr) return absl::NotFoundError("this queue has expired, or the tracker was restarted");
  found->last_call = clock_.Now();
  return found;
}

absl::StatusOr<Session*> Tracker::Impl::FindSession(const std::string& id) {
  RETURN_IF_ERROR(Running());
  Session* found = workers_.Find(id);
  if (found == nullptr) return absl::NotFoundError("this session is over, or the tracker was restarted");
  return found;
}

absl::Status Tracker::Impl::Restore() {
  if (!journal_.keeps()) return absl::OkStatus();
  ASSIGN_OR_RETURN(TrackerState state, journal_.Load());
  tracker::Restore(std::move(state), {journal_, queues_, workers_, leases_, trials_});
  return absl::OkStatus();
}

// ---- coordinators

absl::Status Tracker::Impl::Open(const v1::OpenRequest& request, v1::OpenResponse& response, const std::string& owner) {
  RETURN_IF_ERROR(Running());
  uint32_t protocol = 0;
  if (request.weight() > 0 && request.weight() < kLeastWeight) {
    return absl::InvalidArgumentError(
        absl::StrCat("OpenRequest.weight is ", request.weight(), "; its limits are ", kLeastWeight, " and 1e+06"));
  }
  RETURN_IF_ERROR(CompareProtocols("tracker", request.protocol(), protocol));
  RETURN_IF_ERROR(queues_.CheckOpen(owner));
  v1::OpenRequest open = request;
  open.DiscardUnknownFields();
  open.set_owner(owner);
  Queue& queue = queues_.Add(NewSecret(), open);
  journal_.PutQueue(queue);
  LogEvent(LogLevel::kInfo, "queue_opened",
           {{"job", queue.job()}, {"queue", ShortId(queue.id)}, {"name", request.name()}});
  response.set_protocol(protocol);
  response.set_queue(queue.id);
  response.set_max_pending(options_.max_pending);
  response.set_max_request_bytes(options_.max_request_bytes);
  response.set_expire_ms(static_cast<uint32_t>(options_.queue_expiry.count()));
  response.set_incarnation(incarnation_);
  return absl::OkStatus();
}

absl::Status Tracker::Impl::Submit(const v1::SubmitRequest& request) {
  ASSIGN_OR_RETURN(Queue * queue, FindQueue(request.queue()));
  size_t added = 0, bytes = 0;
  auto is_new = [&](const v1::MeasureRequest& message) {
    return !queue->unfinished.contains(message.id()) && !queue->done.Contains(message.id());
  };
  for (const v1::MeasureRequest& message : request.requests()) {
    RETURN_IF_ERROR(queues_.CheckRequest(message));
    if (!is_new(message)) continue;
    ++added;
    bytes += message.ByteSizeLong();
  }
  RETURN_IF_ERROR(queues_.CheckRoom(*queue, added, bytes));
  std::set<std::string> classes;
  for (const v1::MeasureRequest& message : request.requests()) {
    if (!is_new(message)) continue;
    RequestPtr entry = queues_.AddRequest(*queue, message, absl::GetCurrentTimeNanos());
    journal_.PutRequest(*entry);
    if (trials_.Begin(entry)) classes.insert(entry->device_class);
  }
  for (const std::string& device_class : classes) leases_.Dispatch(device_class);
  return absl::OkStatus();
}

void Tracker::Impl::Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply) {
  absl::StatusOr<Queue*> found = FindQueue(request.queue());
  if (found.ok()) return queues_.Wait(**found, request, std::move(reply));
  journal_.Answer([reply = std::move(reply), status = found.status()] { reply(status, {}); });
}

absl::Status Tracker::Impl::Cancel(const v1::CancelRequest& request, v1::CancelResponse& response) {
  ASSIGN_OR_RETURN(Queue * queue, FindQueue(request.queue()));
  std::vector<RequestPtr> chosen;
  if (request.all()) {
    for (const auto& [id, entry] : queue->unfinished) chosen.push_back(entry);
  } else {
    for (uint64_t id : request.ids()) {
      if (auto found = queue->unfinished.find(id); found != queue->unfinished.end()) chosen.push_back(found->second);
    }
  }
  for (const RequestPtr& entry : chosen) trials_.Cancel(entry, "the coordinator cancelled it");
  response.set_cancelled(static_cast<uint32_t>(chosen.size()));
  return absl::OkStatus();
}

void Tracker::Impl::Close(const std::string& id) {
  Queue* found = queues_.Find(id);
  if (found == nullptr) return;
  Queue& queue = *found;
  while (!queue.unfinished.empty()) trials_.Cancel(queue.unfinished.begin()->second, "the queue is closed");
  queues_.Acknowledge(queue, ~uint64_t{0} >> 1);
  queues_.Answer(queue, absl::NotFoundError("this queue was closed"));
  journal_.EraseQueue(queue);
  LogEvent(LogLevel::kInfo, "queue_closed",
           {{"job", queue.job()},
            {"queue", ShortId(id)},
            {"name", queue.open.name()},
            {"done", std::to_string(queue.done.size())}});
  queues_.Erase(id);
}

// ---- workers

absl::Status Tracker::Impl::Register(const v1::RegisterRequest& request, v1::RegisterResponse& response) {
  RETURN_IF_ERROR(Running());
  uint32_t protocol = 0;
  RETURN_IF_ERROR(CompareProtocols("tracker", request.protocol(), protocol));
  RETURN_IF_ERROR(workers_.Check(request));
  if (const Session* before = workers_.FindWorker(request.worker_id()); before != nullptr)
    watch_.EndSession(std::string(before->id), "the worker started a new session", /*counts=*/true);
  if (workers_.sessions().size() >= options_.max_workers) {
    return absl::ResourceExhaustedError("the tracker has " + std::to_string(workers_.sessions().size()) +
                                        " workers and takes no more");
  }
  Session& session = workers_.Add(NewSecret(), request, quarantines_.Find(request.worker_id(), clock_.Now()));
  journal_.PutSession(session);
  LogEvent(LogLevel::kInfo, "worker_registered",
           {{"worker", request.name()},
            {"devices", std::to_string(request.devices_size())},
            {"session", ShortId(session.id)}});
  response.set_protocol(protocol);
  response.set_session(session.id);
  response.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat.count()));
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_session_ms(static_cast<uint32_t>(options_.session.count()));
  return absl::OkStatus();
}

void Tracker::Impl::Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply) {
  absl::StatusOr<Session*> found = FindSession(request.session());
  if (found.ok()) return leases_.Wait(**found, request, std::move(reply));
  journal_.Answer([reply = std::move(reply), status = found.status()] { reply(status, {}); });
}

absl::Status Tracker::Impl::Report(const v1::ReportRequest& request, v1::ReportResponse& response) {
  ASSIGN_OR_RETURN(Session * session, FindSession(request.session()));
  session->last_report = clock_.Now();
  workers_.TakeStates(*session, request);
  if (!request.devices().empty()) journal_.PutSession(*session);
  if (request.has_statistics()) {
    *session->status.mutable_statistics() = request.statistics();
    session->status.mutable_statistics()->DiscardUnknownFields();
  }
  for (const v1::DeviceStatistics& device : request.device_statistics())
    if (session->Device(device.device()) != nullptr) tracker::NoteCounts(*session, device, clock_.Now());
  for (const v1::LeaseOutcome& outcome : request.outcomes()) watch_.TakeOutcome(*session, outcome);
  for (uint64_t id : request.renew()) {
    auto lease = session->leases.find(id);
    if (lease == session->leases.end()) {
      response.add_over(id);
    } else {
      leases_.Renew(lease->second);
    }
  }
  return absl::OkStatus();
}

void Tracker::Impl::Leave(const std::string& session) {
  watch_.EndSession(session, "the worker left", /*counts=*/false);
}

// ---- time

void Tracker::Impl::TickSessions(Clock::time_point now) {
  std::vector<std::string> dead;
  for (const auto& [id, session] : workers_.sessions()) {
    if (now - session->last_report > options_.session) dead.push_back(id);
    if (session->waiting != nullptr && session->wait_until <= now) leases_.Answer(*session);
  }
  for (const std::string& id : dead) watch_.EndSession(id, "it did not report in time", /*counts=*/true);
  for (const auto& [id, session] : workers_.sessions()) watch_.ExpireLeases(*session, now);
}

void Tracker::Impl::TickQueues(Clock::time_point now) {
  std::vector<std::string> dead;
  for (const auto& [id, queue] : queues_.queues()) {
    if (queue->waiting != nullptr && queue->wait_until <= now) queues_.Answer(*queue);
    if (queue->waiting == nullptr && now - queue->last_call > options_.queue_expiry) dead.push_back(id);
    std::vector<RequestPtr> late;
    for (const auto& [number, request] : queue->unfinished) {
      if (request->give_up.has_value() && *request->give_up <= now) late.push_back(request);
    }
    for (const RequestPtr& request : late) trials_.Cancel(request, "it waited longer than its queue_timeout_seconds");
  }
  for (const std::string& id : dead) Close(id);
}

void Tracker::Impl::Tick() {
  const Clock::time_point now = clock_.Now();
  TickSessions(now);
  TickQueues(now);
  watch_.EndQuarantines(now);
  recent_.Forget(now);
  drift_.Look(now);
  journal_.Mend(now, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return tracker::Snapshot(queues_.queues(), workers_.sessions());
  });
}

void Tracker::Impl::Shutdown() {
  shut_ = true;
  absl::Status status = Running();
  for (const auto& [id, session] : workers_.sessions()) leases_.Answer(*session, status);
  for (const auto& [id, queue] : queues_.queues()) queues_.Answer(*queue, status);
}

// ---- the public face: one turn a call

Tracker::Tracker(TrackerOptions options, std::unique_ptr<TrackerStore> store)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(store))) {}
Tracker::~Tracker() { Shutdown(); }

absl::Status Tracker::Restore() {
  Impl::Turn turn(*impl_);
  return impl_->Restore();
}

absl::Status Tracker::Open(const v1::OpenRequest& request, v1::OpenResponse& response, const std::string& owner) {
  RETURN_IF_ERROR(CheckMessage(request));
  Impl::Turn turn(*impl_);
  return impl_->Open(request, response, owner);
}
absl::Status Tracker::Submit(const v1::SubmitRequest& request, v1::SubmitResponse&) {
  RETURN_IF_ERROR(CheckMessage(request));
  Impl::Turn turn(*impl_);
  return impl_->Submit(request);
}
void Tracker::Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply) {
  if (absl::Status fits = CheckMessage(request); !fits.ok()) return reply(std::move(fits), {});
  Impl::Turn turn(*impl_);
  impl_->Next(request, std::move(reply));
}
absl::Status Tracker::Cancel(const v1::CancelRequest& request, v1::CancelResponse& response) {
  RETURN_IF_ERROR(CheckMessage(request));
  Impl::Turn turn(*impl_);
  return impl_->Cancel(request, response);
}
absl::Status Tracker::Close(const v1::CloseRequest& request, v1::CloseResponse&) {
  Impl::Turn turn(*impl_);
  impl_->Close(request.queue());
  return absl::OkStatus();
}
absl::Status Tracker::Register(const v1::RegisterRequest& request, v1::RegisterResponse& response) {
  RETURN_IF_ERROR(CheckMessage(request));
  Impl::Turn turn(*impl_);
  return impl_->Register(request, response);
}
void Tracker::Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply) {
  if (absl::Status fits = CheckMessage(request); !fits.ok()) return reply(std::move(fits), {});
  Impl::Turn turn(*impl_);
  impl_->Lease(request, std::move(reply));
}
absl::Status Tracker::Report(const v1::ReportRequest& request, v1::ReportResponse& response) {
  // Outcomes one by one: a bad one is no reason to send the others again.
  RETURN_IF_ERROR(CheckMessage(request, /*except=*/"outcomes"));
  Impl::Turn turn(*impl_);
  return impl_->Report(request, response);
}
absl::Status Tracker::Leave(const v1::LeaveRequest& request, v1::LeaveResponse&) {
  Impl::Turn turn(*impl_);
  impl_->Leave(request.session());
  return absl::OkStatus();
}
absl::Status Tracker::ListWorkers(const v1::ListWorkersRequest& request, v1::ListWorkersResponse& response) {
  RETURN_IF_ERROR(CheckMessage(request));
  Impl::Turn turn(*impl_);
  return impl_->ListPage(request.page(), response);
}
void Tracker::WhenStored(std::function<void()> done) {
  Impl::Turn turn(*impl_);
  impl_->WhenStored(std::move(done));
}
std::vector<Metric> Tracker::Metrics() {
  Impl::Turn turn(*impl_);
  return impl_->Metrics();
}
void Tracker::Tick() {
  Impl::Turn turn(*impl_);
  impl_->Tick();
}
void Tracker::Shutdown() {
  Impl::Turn turn(*impl_);
  impl_->Shutdown();
}

}  // namespace diapason
