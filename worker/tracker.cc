#include "worker/tracker.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/tensor/check.h"
#include "worker/convert.h"

namespace diapason {
namespace {

using Clock = TrackerOptions::Clock;
using Labels = google::protobuf::Map<std::string, std::string>;

constexpr uint32_t kDefaultAttempts = 2;
constexpr uint32_t kMaxAttempts = 10;

double SecondsBetween(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }

std::string KindOfTarget(const std::string& target) { return target.substr(0, target.find(' ')); }
// What a request asks for, and what a device offers (twice: for requests that name its model and for those that name none).
std::string ClassOf(const std::string& target, const std::string& model) { return KindOfTarget(target) + "\n" + model; }

bool Carries(const Labels& labels, const Labels& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& label) {
    auto found = labels.find(label.first);
    return found != labels.end() && found->second == label.second;
  });
}

std::string Range(uint32_t low, uint32_t high) {
  return low == high ? std::to_string(low) : std::to_string(low) + " to " + std::to_string(high);
}

absl::Status Handshake(const v1::ProtocolRange& theirs, uint32_t& protocol) {
  protocol = std::min(theirs.high(), kHighestProtocol);
  if (protocol >= std::max(theirs.low(), kLowestProtocol)) return absl::OkStatus();
  return absl::FailedPreconditionError("this tracker speaks protocol " + Range(kLowestProtocol, kHighestProtocol) +
                                       " and the caller " + Range(theirs.low(), theirs.high()) +
                                       ": install the same version of diapason on both");
}

struct Queue;

// A measurement on its way.
struct Request {
  v1::MeasureRequest message;
  Queue* queue = nullptr;
  std::string device_class;
  uint32_t attempts = 0;
  std::set<std::string> tried;  // ids of workers that had it
  Clock::time_point submitted, granted;
  std::optional<Clock::time_point> give_up;  // queue timeout
  uint64_t lease = 0;                        // 0: pending
  double waited = 0;
};
using RequestPtr = std::shared_ptr<Request>;  // shared by its queue's table, a line of the queue and a lease

struct Queue {
  std::string id, name;
  int32_t priority = 0;
  double weight = 1;
  double pass = 0;  // of stride scheduling
  Labels labels;
  std::map<uint64_t, RequestPtr> unfinished;
  std::map<std::string, std::deque<RequestPtr>> pending;  // by class; a request that is no longer pending is skipped
  std::unordered_set<uint64_t> done;                      // ids
  std::deque<v1::MeasureResult> results;                  // not acknowledged
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
};

struct Session {
  std::string id;
  v1::WorkerStatus status;
  std::map<std::string, std::vector<std::string>> classes;  // by device: what it serves now
  std::map<uint64_t, LeaseEntry> leases;
  std::vector<uint64_t> revoked;  // to be told
  uint64_t batch = 0;             // of the last answer to Lease
  Tracker::Reply<v1::LeaseResponse> waiting;
  std::map<std::string, uint32_t> capacity;  // of the call that waits
  Clock::time_point wait_until, last_report;
  bool in_line = false;  // in Impl::waiting_sessions_

  bool Offers(const std::string& device_class) const {
    return std::any_of(classes.begin(), classes.end(), [&](const auto& entry) {
      return std::find(entry.second.begin(), entry.second.end(), device_class) != entry.second.end();
    });
  }
};

}  // namespace

class Tracker::Impl {
 public:
  explicit Impl(TrackerOptions options) : options_(std::move(options)) {
    last_tick_ = options_.now();
    // Not reused by a later tracker either: a clock gives the start, a counter the rest.
    next_lease_ = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  }

  absl::Status Open(const v1::OpenRequest& request, v1::OpenResponse& response);
  absl::Status Submit(const v1::SubmitRequest& request);
  void Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply);
  absl::Status Cancel(const v1::CancelRequest& request, v1::CancelResponse& response);
  void Close(const std::string& queue);
  absl::Status Register(const v1::RegisterRequest& request, v1::RegisterResponse& response);
  void Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply);
  absl::Status Report(const v1::ReportRequest& request, v1::ReportResponse& response);
  void Leave(const std::string& session);
  void ListWorkers(v1::ListWorkersResponse& response);
  void Tick();
  void Shutdown();

  // Holds the lock; what was answered meanwhile is called after it is given back.
  class Turn {
   public:
    explicit Turn(Impl& impl) : impl_(impl), lock_(impl.mutex_) {}
    ~Turn() {
      std::vector<std::function<void()>> answers = std::exchange(impl_.answers_, {});
      lock_.unlock();
      for (auto& answer : answers) answer();
    }

   private:
    Impl& impl_;
    std::unique_lock<std::mutex> lock_;
  };

 private:
  Clock::time_point Now() const { return options_.now() - stalled_; }
  std::string NewSecret();
  absl::Status Running() const {
    return shut_ ? absl::UnavailableError("the tracker is stopping") : absl::OkStatus();
  }
  absl::StatusOr<Queue*> FindQueue(const std::string& id);
  absl::StatusOr<Session*> FindSession(const std::string& id);
  absl::Status CheckRequest(const v1::MeasureRequest& request) const;
  absl::Status CheckWorker(const v1::RegisterRequest& request) const;

  // Grants pending requests of a class to the sessions that wait, one each in turn.
  void Dispatch(const std::string& device_class);
  // Grants to one session as much as it has capacity for, and its share of what waits.
  void DispatchTo(Session& session);
  RequestPtr TakePending(const std::string& device_class, const Session& session);
  uint64_t Grant(Session& session, const std::string& device, const RequestPtr& request);
  // A device of the session with capacity for the class.
  std::optional<std::string> FreeDevice(const Session& session, const std::string& device_class) const;
  void SetDeviceState(Session& session, const std::string& device, v1::DeviceState state);
  bool HasPending(const std::string& device_class);
  bool AnotherWorkerCould(const Request& request) const;
  void AnswerLease(Session& session, absl::Status status = absl::OkStatus());
  void Redeliver(Session& session, uint64_t received);

  void Enqueue(const RequestPtr& request, bool in_front);
  // The lease is over: another worker's turn, or the result `why` when no attempts are left.
  void Retry(Session& session, const RequestPtr& request, v1::MeasureResult why);
  // By value, as CancelRequest: the callers take it from the tables that it is removed from.
  void Finish(RequestPtr request, v1::MeasureResult result);
  void CancelRequest(RequestPtr request, const std::string& reason);
  void AnswerNext(Queue& queue, absl::Status status = absl::OkStatus());
  void EndSession(const std::string& id, const std::string& why, bool counts);
  void EndQueue(const std::string& id);
  void ExpireLeases(Session& session, Clock::time_point now);

  const TrackerOptions options_;
  std::mutex mutex_;  // guards all below
  std::vector<std::function<void()>> answers_;
  std::map<std::string, std::unique_ptr<Queue>> queues_;
  std::map<std::string, std::unique_ptr<Session>> sessions_;
  std::deque<std::string> waiting_sessions_;  // in the order in which they are served; may hold ones that no longer wait
  std::map<std::string, size_t> devices_serving_;  // by class
  uint64_t next_lease_ = 1;
  Clock::time_point last_tick_;
  Clock::duration stalled_{};
  std::random_device random_;
  bool shut_ = false;
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
  auto found = queues_.find(id);
  if (found == queues_.end()) return absl::NotFoundError("this queue has expired, or the tracker was restarted");
  found->second->last_call = Now();
  return found->second.get();
}

absl::StatusOr<Session*> Tracker::Impl::FindSession(const std::string& id) {
  RETURN_IF_ERROR(Running());
  auto found = sessions_.find(id);
  if (found == sessions_.end()) return absl::NotFoundError("this session is over, or the tracker was restarted");
  return found->second.get();
}

// ---- coordinators

absl::Status Tracker::Impl::Open(const v1::OpenRequest& request, v1::OpenResponse& response) {
  RETURN_IF_ERROR(Running());
  uint32_t protocol = 0;
  RETURN_IF_ERROR(Handshake(request.protocol(), protocol));
  if (queues_.size() >= options_.max_queues) {
    return absl::ResourceExhaustedError("the tracker has " + std::to_string(queues_.size()) + " queues and takes no more");
  }
  auto queue = std::make_unique<Queue>();
  queue->id = NewSecret();
  queue->name = request.name();
  queue->priority = request.priority();
  queue->weight = request.weight() > 0 ? request.weight() : 1;
  queue->labels = request.labels();
  queue->last_call = Now();
  // A newcomer starts with the others: neither owed for the time before it nor behind.
  bool first = true;
  for (const auto& [id, other] : queues_) {
    if (!other->unfinished.empty()) queue->pass = first ? other->pass : std::min(queue->pass, other->pass);
    if (!other->unfinished.empty()) first = false;
  }
  response.set_protocol(protocol);
  response.set_queue(queue->id);
  response.set_max_pending(options_.max_pending);
  response.set_max_request_bytes(options_.max_request_bytes);
  response.set_expire_ms(static_cast<uint32_t>(options_.queue_expiry.count()));
  queues_[queue->id] = std::move(queue);
  return absl::OkStatus();
}

absl::Status Tracker::Impl::CheckRequest(const v1::MeasureRequest& request) const {
  std::string name = "measurement request " + std::to_string(request.id());
  if (request.id() == 0) return absl::InvalidArgumentError("a measurement request without id");
  if (request.workload().empty()) return absl::InvalidArgumentError(name + " has no workload");
  if (request.schedule().empty()) return absl::InvalidArgumentError(name + " has no schedule");
  if (request.target().empty()) return absl::InvalidArgumentError(name + " has no target");
  if (request.ByteSizeLong() > options_.max_request_bytes) {
    return absl::InvalidArgumentError(name + " has " + std::to_string(request.ByteSizeLong()) + " bytes, more than the limit of " +
                                      std::to_string(options_.max_request_bytes));
  }
  return absl::OkStatus();
}

absl::Status Tracker::Impl::Submit(const v1::SubmitRequest& request) {
  ASSIGN_OR_RETURN(Queue * queue, FindQueue(request.queue()));
  size_t added = 0;
  for (const v1::MeasureRequest& message : request.requests()) {
    RETURN_IF_ERROR(CheckRequest(message));
    added += !queue->unfinished.contains(message.id()) && !queue->done.contains(message.id());
  }
  if (queue->unfinished.size() + queue->results.size() + added > options_.max_pending) {
    return absl::ResourceExhaustedError("the queue holds " + std::to_string(queue->unfinished.size() + queue->results.size()) +
                                        " requests and takes " + std::to_string(options_.max_pending));
  }
  std::set<std::string> classes;
  for (const v1::MeasureRequest& message : request.requests()) {
    if (queue->unfinished.contains(message.id()) || queue->done.contains(message.id())) continue;
    auto entry = std::make_shared<Request>();
    entry->message = message;
    entry->queue = queue;
    entry->device_class = ClassOf(message.target(), message.device_model());
    entry->submitted = Now();
    if (message.queue_timeout_seconds() > 0) {
      entry->give_up = Now() + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(std::min(message.queue_timeout_seconds(), 1e8)));
    }
    queue->unfinished[message.id()] = entry;
    Enqueue(entry, /*in_front=*/false);
    classes.insert(entry->device_class);
  }
  for (const std::string& device_class : classes) Dispatch(device_class);
  return absl::OkStatus();
}

void Tracker::Impl::Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply) {
  absl::StatusOr<Queue*> found = FindQueue(request.queue());
  if (!found.ok()) {
    answers_.push_back([reply = std::move(reply), status = found.status()] { reply(status, {}); });
    return;
  }
  Queue& queue = **found;
  AnswerNext(queue);  // an older call
  while (!queue.results.empty() && queue.results.front().sequence() <= request.acknowledged()) queue.results.pop_front();
  queue.waiting = std::move(reply);
  queue.max_results = request.max_results();
  queue.wait_until = Now() + std::min<Clock::duration>(std::chrono::milliseconds(request.max_wait_ms()), options_.max_wait);
  if (!queue.results.empty() || request.max_wait_ms() == 0) AnswerNext(queue);
}

void Tracker::Impl::AnswerNext(Queue& queue, absl::Status status) {
  if (queue.waiting == nullptr) return;
  v1::NextResponse response;
  size_t limit = options_.max_results_per_answer;
  if (queue.max_results > 0) limit = std::min<size_t>(limit, queue.max_results);
  size_t bytes = 0;
  for (const v1::MeasureResult& result : queue.results) {
    if (!status.ok() || static_cast<size_t>(response.results_size()) >= limit || bytes > options_.max_answer_bytes) break;
    *response.add_results() = result;
    bytes += result.ByteSizeLong();
  }
  response.set_unfinished(static_cast<uint32_t>(queue.unfinished.size()));
  queue.last_call = Now();
  answers_.push_back([reply = std::exchange(queue.waiting, nullptr), status = std::move(status),
                      response = std::move(response)]() mutable { reply(status, std::move(response)); });
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
  for (const RequestPtr& entry : chosen) CancelRequest(entry, "the coordinator cancelled it");
  response.set_cancelled(static_cast<uint32_t>(chosen.size()));
  return absl::OkStatus();
}

void Tracker::Impl::Close(const std::string& id) { EndQueue(id); }

void Tracker::Impl::EndQueue(const std::string& id) {
  auto found = queues_.find(id);
  if (found == queues_.end()) return;
  Queue& queue = *found->second;
  while (!queue.unfinished.empty()) CancelRequest(queue.unfinished.begin()->second, "the queue is closed");
  queue.results.clear();
  AnswerNext(queue, absl::NotFoundError("this queue was closed"));
  queues_.erase(found);
}

void Tracker::Impl::CancelRequest(RequestPtr request, const std::string& reason) {
  for (auto& [id, session] : sessions_) {
    if (request->lease == 0 || session->leases.erase(request->lease) == 0) continue;
    session->revoked.push_back(request->lease);
    AnswerLease(*session);
  }
  v1::MeasureResult result;
  result.mutable_cancelled()->set_reason(reason);
  Finish(request, std::move(result));
}

void Tracker::Impl::Finish(RequestPtr request, v1::MeasureResult result) {
  Queue& queue = *request->queue;
  if (queue.unfinished.erase(request->message.id()) == 0) return;
  request->lease = ~uint64_t{0};  // no longer pending: lines skip it
  queue.done.insert(request->message.id());
  result.set_id(request->message.id());
  result.set_sequence(queue.next_sequence++);
  result.set_attempts(request->attempts);
  result.mutable_times()->set_queued_seconds(request->waited);
  queue.results.push_back(std::move(result));
  AnswerNext(queue);
}

// ---- matching

void Tracker::Impl::Enqueue(const RequestPtr& request, bool in_front) {
  request->lease = 0;
  std::deque<RequestPtr>& line = request->queue->pending[request->device_class];
  in_front ? line.push_front(request) : line.push_back(request);
}

// A device in quarantine serves nothing.
void Tracker::Impl::SetDeviceState(Session& session, const std::string& name, v1::DeviceState state) {
  std::vector<std::string>& classes = session.classes[name];
  for (const std::string& device_class : std::exchange(classes, {})) --devices_serving_[device_class];
  if (state == v1::DEVICE_STATE_QUARANTINED) return;
  for (const v1::DeviceDescription& device : session.status.devices()) {
    if (device.name() != name) continue;
    if (!device.facts().model().empty()) classes.push_back(ClassOf(device.target(), device.facts().model()));
    classes.push_back(ClassOf(device.target(), ""));
  }
  for (const std::string& device_class : classes) ++devices_serving_[device_class];
}

bool Tracker::Impl::HasPending(const std::string& device_class) {
  for (auto& [id, queue] : queues_) {
    auto line = queue->pending.find(device_class);
    if (line == queue->pending.end()) continue;
    while (!line->second.empty() && line->second.front()->lease != 0) line->second.pop_front();
    if (!line->second.empty()) return true;
  }
  return false;
}

bool Tracker::Impl::AnotherWorkerCould(const Request& request) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    const Session& session = *entry.second;
    return !request.tried.contains(session.status.worker_id()) && Carries(session.status.labels(), request.queue->labels) &&
           session.Offers(request.device_class);
  });
}

std::optional<std::string> Tracker::Impl::FreeDevice(const Session& session, const std::string& device_class) const {
  for (const auto& [device, free] : session.capacity) {
    auto classes = session.classes.find(device);
    if (free == 0 || classes == session.classes.end()) continue;
    if (std::find(classes->second.begin(), classes->second.end(), device_class) != classes->second.end()) return device;
  }
  return std::nullopt;
}

RequestPtr Tracker::Impl::TakePending(const std::string& device_class, const Session& session) {
  Queue* best = nullptr;
  size_t best_at = 0;
  for (auto& [id, queue] : queues_) {
    auto line = queue->pending.find(device_class);
    if (line == queue->pending.end() || !Carries(session.status.labels(), queue->labels)) continue;
    while (!line->second.empty() && line->second.front()->lease != 0) line->second.pop_front();
    bool better = best == nullptr || queue->priority > best->priority ||
                  (queue->priority == best->priority && queue->pass < best->pass);
    if (!better) continue;
    for (size_t i = 0; i < line->second.size(); ++i) {
      const Request& request = *line->second[i];
      if (request.lease != 0) continue;
      if (request.tried.contains(session.status.worker_id()) && AnotherWorkerCould(request)) continue;
      best = queue.get();
      best_at = i;
      break;
    }
  }
  if (best == nullptr) return nullptr;
  std::deque<RequestPtr>& line = best->pending[device_class];
  RequestPtr request = line[best_at];
  line.erase(line.begin() + static_cast<std::ptrdiff_t>(best_at));
  best->pass += 1 / best->weight;
  return request;
}

uint64_t Tracker::Impl::Grant(Session& session, const std::string& device, const RequestPtr& request) {
  uint64_t id = next_lease_++;
  request->lease = id;
  request->granted = Now();
  request->waited = SecondsBetween(request->submitted, request->granted);
  ++request->attempts;
  request->tried.insert(session.status.worker_id());
  // Of the answer that is about to be given.
  session.leases[id] = {request, device, Now() + options_.lease, session.batch + 1};
  --session.capacity[device];
  return id;
}

void Tracker::Impl::Dispatch(const std::string& device_class) {
  std::set<std::string> served;
  // One each in turn, until nobody in the line can take any.
  size_t in_vain = 0;
  while (in_vain < waiting_sessions_.size() && HasPending(device_class)) {
    std::string id = std::move(waiting_sessions_.front());
    waiting_sessions_.pop_front();
    auto found = sessions_.find(id);
    if (found == sessions_.end()) continue;
    Session& session = *found->second;
    session.in_line = session.waiting != nullptr;
    if (!session.in_line) continue;
    waiting_sessions_.push_back(id);
    std::optional<std::string> device = FreeDevice(session, device_class);
    RequestPtr request = device.has_value() ? TakePending(device_class, session) : nullptr;
    ++in_vain;
    if (request == nullptr) continue;
    in_vain = 0;
    Grant(session, *device, request);
    served.insert(id);
  }
  for (const std::string& id : served) AnswerLease(*sessions_[id]);
}

// ---- workers

absl::Status Tracker::Impl::CheckWorker(const v1::RegisterRequest& request) const {
  if (request.worker_id().empty()) return absl::InvalidArgumentError("a worker without worker_id");
  if (request.devices().empty()) return absl::InvalidArgumentError("worker '" + request.name() + "' has no device");
  std::set<std::string> names;
  for (const v1::DeviceDescription& device : request.devices()) {
    if (!names.insert(device.name()).second) {
      return absl::InvalidArgumentError("worker '" + request.name() + "' has two devices named '" + device.name() + "'");
    }
    // Processors may be shared out between workers; a GPU has one owner.
    if (device.facts().uuid().empty() || KindOfTarget(device.target()) != "cuda") continue;
    for (const auto& [id, session] : sessions_) {
      if (session->status.worker_id() == request.worker_id()) continue;
      for (const v1::DeviceDescription& other : session->status.devices()) {
        if (other.facts().uuid() != device.facts().uuid()) continue;
        return absl::AlreadyExistsError("device '" + device.name() + "' (" + device.facts().uuid() + ") of worker '" +
                                        request.name() + "' is registered by worker '" + session->status.name() +
                                        "' already: stop one of them, or give them different devices");
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Tracker::Impl::Register(const v1::RegisterRequest& request, v1::RegisterResponse& response) {
  RETURN_IF_ERROR(Running());
  uint32_t protocol = 0;
  RETURN_IF_ERROR(Handshake(request.protocol(), protocol));
  RETURN_IF_ERROR(CheckWorker(request));
  for (const auto& [id, session] : sessions_) {
    if (session->status.worker_id() != request.worker_id()) continue;
    EndSession(std::string(id), "the worker started a new session", /*counts=*/true);
    break;
  }
  auto session = std::make_unique<Session>();
  session->id = NewSecret();
  session->status.set_worker_id(request.worker_id());
  session->status.set_name(request.name());
  session->status.set_program(request.program());
  *session->status.mutable_labels() = request.labels();
  *session->status.mutable_devices() = request.devices();
  session->status.mutable_statistics()->set_builders(request.builders());
  session->status.mutable_statistics()->set_devices(static_cast<uint32_t>(request.devices_size()));
  for (const v1::DeviceDescription& device : request.devices()) SetDeviceState(*session, device.name(), device.state());
  session->last_report = Now();
  response.set_protocol(protocol);
  response.set_session(session->id);
  response.set_heartbeat_ms(static_cast<uint32_t>(options_.heartbeat.count()));
  response.set_lease_ms(static_cast<uint32_t>(options_.lease.count()));
  response.set_session_ms(static_cast<uint32_t>(options_.session.count()));
  sessions_[session->id] = std::move(session);
  return absl::OkStatus();
}

void Tracker::Impl::Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply) {
  absl::StatusOr<Session*> found = FindSession(request.session());
  if (!found.ok()) {
    answers_.push_back([reply = std::move(reply), status = found.status()] { reply(status, {}); });
    return;
  }
  Session& session = **found;
  AnswerLease(session);  // an older call
  session.waiting = std::move(reply);
  session.capacity.clear();
  for (const v1::DeviceCapacity& device : request.capacity()) session.capacity[device.device()] = device.free();
  session.wait_until = Now() + std::min<Clock::duration>(std::chrono::milliseconds(request.max_wait_ms()), options_.max_wait);
  Redeliver(session, request.received());
  DispatchTo(session);
  bool has_news = !session.revoked.empty() || std::any_of(session.leases.begin(), session.leases.end(), [&](const auto& entry) {
    return entry.second.batch == session.batch + 1;
  });
  if (has_news || request.max_wait_ms() == 0) {
    AnswerLease(session);
  } else if (!session.in_line) {
    session.in_line = true;
    waiting_sessions_.push_back(session.id);
  }
}

// What was granted by an answer that did not arrive goes into the next one.
void Tracker::Impl::Redeliver(Session& session, uint64_t received) {
  for (auto& [id, lease] : session.leases) {
    if (lease.batch <= received) continue;
    lease.batch = session.batch + 1;
    uint32_t& free = session.capacity[lease.device];
    free -= std::min(free, 1u);
  }
}

void Tracker::Impl::DispatchTo(Session& session) {
  for (const auto& [device, classes] : session.classes) {
    for (const std::string& device_class : classes) {
      size_t pending = 0;
      for (const auto& [id, queue] : queues_) {
        if (auto line = queue->pending.find(device_class); line != queue->pending.end()) pending += line->second.size();
      }
      // The other devices' workers are about to ask as well.
      size_t serving = std::max<size_t>(1, devices_serving_[device_class]);
      size_t share = (pending + serving - 1) / serving;
      for (; share > 0 && session.capacity[device] > 0; --share) {
        RequestPtr request = TakePending(device_class, session);
        if (request == nullptr) break;
        Grant(session, device, request);
      }
    }
  }
}

void Tracker::Impl::AnswerLease(Session& session, absl::Status status) {
  if (session.waiting == nullptr) return;
  v1::LeaseResponse response;
  response.set_batch(++session.batch);
  for (const auto& [id, lease] : session.leases) {
    if (lease.batch != session.batch) continue;
    v1::LeaseGrant& grant = *response.add_grants();
    grant.set_lease(id);
    grant.set_device(lease.device);
    *grant.mutable_request() = lease.request->message;
    grant.set_attempt(lease.request->attempts);
  }
  for (uint64_t id : std::exchange(session.revoked, {})) response.add_revoked(id);
  answers_.push_back([reply = std::exchange(session.waiting, nullptr), status = std::move(status),
                      response = std::move(response)]() mutable { reply(status, std::move(response)); });
}

absl::Status Tracker::Impl::Report(const v1::ReportRequest& request, v1::ReportResponse& response) {
  ASSIGN_OR_RETURN(Session * session, FindSession(request.session()));
  session->last_report = Now();
  for (const v1::DeviceStatus& device : request.devices()) {
    SetDeviceState(*session, device.device(), device.state());
    auto known = std::find_if(session->status.mutable_states()->begin(), session->status.mutable_states()->end(),
                              [&](const v1::DeviceStatus& s) { return s.device() == device.device(); });
    (known != session->status.mutable_states()->end() ? *known : *session->status.add_states()) = device;
  }
  if (request.has_statistics()) *session->status.mutable_statistics() = request.statistics();
  for (const v1::LeaseOutcome& outcome : request.outcomes()) {
    auto lease = session->leases.find(outcome.lease());
    if (lease == session->leases.end()) continue;  // over: too late, or told twice
    RequestPtr entry = lease->second.request;
    session->leases.erase(lease);
    session->status.set_done(session->status.done() + 1);
    if (outcome.result().has_error()) session->status.set_errors(session->status.errors() + 1);
    // A worker that gives up for reasons of its own (`cancelled`: it stops) has said nothing.
    bool no_answer = outcome.result().has_cancelled() || IsInfrastructure(outcome.result());
    if (no_answer) {
      Retry(*session, entry, outcome.result());
    } else {
      Finish(entry, outcome.result());
    }
  }
  for (uint64_t id : request.renew()) {
    auto lease = session->leases.find(id);
    if (lease == session->leases.end()) {
      response.add_over(id);
    } else {
      lease->second.expires = Now() + options_.lease;
    }
  }
  return absl::OkStatus();
}

void Tracker::Impl::Retry(Session& session, const RequestPtr& request, v1::MeasureResult why) {
  uint32_t allowed = request->message.max_attempts() > 0 ? request->message.max_attempts() : kDefaultAttempts;
  if (request->attempts < std::min(allowed, kMaxAttempts)) {
    Enqueue(request, /*in_front=*/true);
    Dispatch(request->device_class);
    return;
  }
  if (why.has_cancelled()) why = InfrastructureResult(MeasureStage::kQueue, "the worker stopped");
  Finish(request, std::move(why));
}

void Tracker::Impl::EndSession(const std::string& id, const std::string& why, bool counts) {
  auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  for (const auto& [device, classes] : session->classes) {
    for (const std::string& device_class : classes) --devices_serving_[device_class];
  }
  std::map<uint64_t, LeaseEntry> leases = std::exchange(session->leases, {});
  AnswerLease(*session, absl::NotFoundError("this session is over: " + why));
  for (auto it = leases.rbegin(); it != leases.rend(); ++it) {  // backwards, since each goes to the front of its line
    const RequestPtr& request = it->second.request;
    if (counts) {
      Retry(*session, request,
            InfrastructureResult(MeasureStage::kQueue, "worker '" + session->status.name() + "' was lost: " + why));
      continue;
    }
    --request->attempts;
    request->tried.erase(session->status.worker_id());
    Enqueue(request, /*in_front=*/true);
    Dispatch(request->device_class);
  }
}

void Tracker::Impl::Leave(const std::string& session) { EndSession(session, "the worker left", /*counts=*/false); }

void Tracker::Impl::ListWorkers(v1::ListWorkersResponse& response) {
  Clock::time_point now = Now();
  for (const auto& [id, session] : sessions_) {
    v1::WorkerStatus& status = *response.add_workers();
    status = session->status;
    status.set_last_seen_seconds(SecondsBetween(session->last_report, now));
    status.set_leases(static_cast<uint32_t>(session->leases.size()));
  }
  for (const auto& [id, queue] : queues_) {
    v1::QueueStatus& status = *response.add_queues();
    status.set_name(queue->name);
    status.set_priority(queue->priority);
    status.set_weight(queue->weight);
    auto leased = std::count_if(queue->unfinished.begin(), queue->unfinished.end(),
                                [](const auto& entry) { return entry.second->lease != 0; });
    status.set_leased(static_cast<uint32_t>(leased));
    status.set_pending(static_cast<uint32_t>(queue->unfinished.size()) - status.leased());
    status.set_done(queue->done.size());
  }
}

// ---- time

void Tracker::Impl::ExpireLeases(Session& session, Clock::time_point now) {
  std::vector<uint64_t> over;
  for (const auto& [id, lease] : session.leases) {
    if (lease.expires <= now) over.push_back(id);
  }
  for (uint64_t id : over) {
    RequestPtr request = session.leases[id].request;
    session.leases.erase(id);
    session.revoked.push_back(id);
    Retry(session, request,
          InfrastructureResult(MeasureStage::kQueue, "worker '" + session.status.name() + "' did not renew its lease"));
  }
  if (!over.empty()) AnswerLease(session);
}

void Tracker::Impl::Tick() {
  Clock::time_point real = options_.now();
  if (real - last_tick_ > options_.stall) stalled_ += real - last_tick_;
  last_tick_ = real;
  Clock::time_point now = Now();
  std::vector<std::string> dead_sessions, dead_queues;
  for (auto& [id, session] : sessions_) {
    if (now - session->last_report > options_.session) dead_sessions.push_back(id);
    if (session->waiting != nullptr && session->wait_until <= now) AnswerLease(*session);
  }
  for (const std::string& id : dead_sessions) EndSession(id, "it did not report in time", /*counts=*/true);
  for (auto& [id, session] : sessions_) ExpireLeases(*session, now);
  for (auto& [id, queue] : queues_) {
    if (queue->waiting != nullptr && queue->wait_until <= now) AnswerNext(*queue);
    if (queue->waiting == nullptr && now - queue->last_call > options_.queue_expiry) dead_queues.push_back(id);
    std::vector<RequestPtr> late;
    for (const auto& [number, request] : queue->unfinished) {
      if (request->give_up.has_value() && *request->give_up <= now) late.push_back(request);
    }
    for (const RequestPtr& request : late) CancelRequest(request, "it waited longer than its queue_timeout_seconds");
  }
  for (const std::string& id : dead_queues) EndQueue(id);
}

void Tracker::Impl::Shutdown() {
  shut_ = true;
  absl::Status status = Running();
  for (auto& [id, session] : sessions_) AnswerLease(*session, status);
  for (auto& [id, queue] : queues_) AnswerNext(*queue, status);
}

// ---- the public face: one turn a call

Tracker::Tracker(TrackerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Tracker::~Tracker() { Shutdown(); }

absl::Status Tracker::Open(const v1::OpenRequest& request, v1::OpenResponse& response) {
  Impl::Turn turn(*impl_);
  return impl_->Open(request, response);
}
absl::Status Tracker::Submit(const v1::SubmitRequest& request, v1::SubmitResponse&) {
  Impl::Turn turn(*impl_);
  return impl_->Submit(request);
}
void Tracker::Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply) {
  Impl::Turn turn(*impl_);
  impl_->Next(request, std::move(reply));
}
absl::Status Tracker::Cancel(const v1::CancelRequest& request, v1::CancelResponse& response) {
  Impl::Turn turn(*impl_);
  return impl_->Cancel(request, response);
}
absl::Status Tracker::Close(const v1::CloseRequest& request, v1::CloseResponse&) {
  Impl::Turn turn(*impl_);
  impl_->Close(request.queue());
  return absl::OkStatus();
}
absl::Status Tracker::Register(const v1::RegisterRequest& request, v1::RegisterResponse& response) {
  Impl::Turn turn(*impl_);
  return impl_->Register(request, response);
}
void Tracker::Lease(const v1::LeaseRequest& request, Reply<v1::LeaseResponse> reply) {
  Impl::Turn turn(*impl_);
  impl_->Lease(request, std::move(reply));
}
absl::Status Tracker::Report(const v1::ReportRequest& request, v1::ReportResponse& response) {
  Impl::Turn turn(*impl_);
  return impl_->Report(request, response);
}
absl::Status Tracker::Leave(const v1::LeaveRequest& request, v1::LeaveResponse&) {
  Impl::Turn turn(*impl_);
  impl_->Leave(request.session());
  return absl::OkStatus();
}
absl::Status Tracker::ListWorkers(const v1::ListWorkersRequest&, v1::ListWorkersResponse& response) {
  Impl::Turn turn(*impl_);
  impl_->ListWorkers(response);
  return absl::OkStatus();
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
