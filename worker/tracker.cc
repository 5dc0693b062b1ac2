#include "worker/tracker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "worker/convert.h"
#include "worker/log.h"
#include "worker/message_limits.h"
#include "worker/tracker_impl.h"

namespace diapason {
namespace {

// Of the numbers of what a queue has done: a coordinator that counts its requests has a few.
constexpr size_t kDoneRanges = 4096;
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

std::string Tracker::Impl::NewSecret() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string secret;
  for (int i = 0; i < 4; ++i) {
    uint32_t bits = random_();
    for (int d = 0; d < 8; ++d) secret += kDigits[bits >> (4 * d) & 15];
  }
  return secret;
}

absl::StatusOr<Tracker::Impl::Queue*> Tracker::Impl::FindQueue(const std::string& id) {
  RETURN_IF_ERROR(Running());
  auto found = queues_.find(id);
  if (found == queues_.end()) return absl::NotFoundError("this queue has expired, or the tracker was restarted");
  found->second->last_call = Now();
  return found->second.get();
}

absl::StatusOr<Tracker::Impl::Session*> Tracker::Impl::FindSession(const std::string& id) {
  RETURN_IF_ERROR(Running());
  auto found = sessions_.find(id);
  if (found == sessions_.end()) return absl::NotFoundError("this session is over, or the tracker was restarted");
  return found->second.get();
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
  if (queues_.size() >= options_.max_queues) {
    return absl::ResourceExhaustedError("the tracker has " + std::to_string(queues_.size()) +
                                        " queues and takes no more");
  }
  const auto usage = usage_.find(owner);
  if (!owner.empty() && usage != usage_.end() && usage->second.queues >= options_.max_queues_per_token) {
    return absl::ResourceExhaustedError("the token of '" + owner + "' has " + std::to_string(usage->second.queues) +
                                        " queues and may open no more; close some");
  }
  v1::OpenRequest open = request;
  open.DiscardUnknownFields();
  open.set_owner(owner);
  Queue& queue = AddQueue(NewSecret(), open);
  if (store_ != nullptr) store_->PutQueue(queue.id, queue.open);
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

Tracker::Impl::Queue& Tracker::Impl::AddQueue(const std::string& id, const v1::OpenRequest& open) {
  auto queue = std::make_unique<Queue>();
  queue->id = id;
  queue->number = next_queue_++;
  queue->open = open;
  queue->last_call = Now();
  if (!open.owner().empty()) ++usage_[open.owner()].queues;
  // A newcomer starts with the others: neither owed for the time before it nor behind.
  bool first = true;
  for (const auto& [other_id, other] : queues_) {
    if (!other->unfinished.empty()) queue->pass = first ? other->pass : std::min(queue->pass, other->pass);
    if (!other->unfinished.empty()) first = false;
  }
  return *(queues_[id] = std::move(queue));
}

// What a queue holds counts for the tracker, and for who opened it.
void Tracker::Impl::Charge(const Queue& queue, int64_t requests, int64_t bytes) {
  stored_bytes_ += static_cast<size_t>(bytes);
  if (queue.open.owner().empty()) return;
  Usage& usage = usage_[queue.open.owner()];
  usage.requests += requests;
  usage.bytes += bytes;
}

absl::Status Tracker::Impl::CheckRoom(const Queue& queue, size_t requests, size_t bytes) const {
  const size_t held = queue.unfinished.size() + queue.results.size();
  if (held + requests > options_.max_pending) {
    return absl::ResourceExhaustedError("the queue holds " + std::to_string(held) + " requests and takes " +
                                        std::to_string(options_.max_pending));
  }
  // One queue alone may always have one request: else a large one would never fit.
  if (stored_bytes_ > 0 && stored_bytes_ + bytes > options_.max_stored_bytes) {
    return absl::ResourceExhaustedError("the tracker holds " + std::to_string(stored_bytes_) +
                                        " bytes of requests and results and takes " +
                                        std::to_string(options_.max_stored_bytes));
  }
  const auto found = usage_.find(queue.open.owner());
  if (found == usage_.end()) return absl::OkStatus();
  const auto& [owner, usage] = *found;
  if (static_cast<size_t>(usage.requests) + requests > options_.max_pending_per_token) {
    return absl::ResourceExhaustedError("the queues of the token of '" + owner + "' hold " +
                                        std::to_string(usage.requests) + " requests and take " +
                                        std::to_string(options_.max_pending_per_token));
  }
  if (usage.bytes > 0 && static_cast<size_t>(usage.bytes) + bytes > options_.max_stored_bytes_per_token) {
    return absl::ResourceExhaustedError("the queues of the token of '" + owner + "' hold " +
                                        std::to_string(usage.bytes) + " bytes of requests and results and take " +
                                        std::to_string(options_.max_stored_bytes_per_token));
  }
  return absl::OkStatus();
}

absl::Status Tracker::Impl::CheckRequest(const v1::MeasureRequest& request) const {
  std::string name = "measurement request " + std::to_string(request.id());
  if (request.id() == 0) return absl::InvalidArgumentError("a measurement request without id");
  if (request.has_network() &&
      (request.network().plan().programs().empty() || request.mode() != v1::MEASURE_MODE_VERIFY))
    return absl::InvalidArgumentError(name + " has a network without programs, or another mode than VERIFY");
  if (request.has_network() && !(request.workload().empty() && request.schedule().empty()))
    return absl::InvalidArgumentError(name + " has both a network and a workload of its own");
  if (!request.has_network() && request.workload().empty())
    return absl::InvalidArgumentError(name + " has no workload");
  if (!request.has_network() && request.schedule().empty())
    return absl::InvalidArgumentError(name + " has no schedule");
  if (request.target().empty()) return absl::InvalidArgumentError(name + " has no target");
  if (request.ByteSizeLong() > options_.max_request_bytes) {
    return absl::InvalidArgumentError(name + " has " + std::to_string(request.ByteSizeLong()) +
                                      " bytes, more than the limit of " + std::to_string(options_.max_request_bytes));
  }
  return absl::OkStatus();
}

absl::Status Tracker::Impl::Submit(const v1::SubmitRequest& request) {
  ASSIGN_OR_RETURN(Queue * queue, FindQueue(request.queue()));
  size_t added = 0, bytes = 0;
  auto is_new = [&](const v1::MeasureRequest& message) {
    return !queue->unfinished.contains(message.id()) && !queue->done.Contains(message.id());
  };
  for (const v1::MeasureRequest& message : request.requests()) {
    RETURN_IF_ERROR(CheckRequest(message));
    if (!is_new(message)) continue;
    ++added;
    bytes += message.ByteSizeLong();
  }
  RETURN_IF_ERROR(CheckRoom(*queue, added, bytes));
  std::set<std::string> classes;
  for (const v1::MeasureRequest& message : request.requests()) {
    if (!is_new(message)) continue;
    RequestPtr entry = AddRequest(*queue, message, absl::GetCurrentTimeNanos());
    if (store_ != nullptr) store_->PutRequest(queue->id, message, entry->submitted_at);
    Join(entry);
    if (entry->parked || TakeRecent(entry)) continue;
    Enqueue(entry, /*in_front=*/false);
    classes.insert(entry->device_class);
  }
  for (const std::string& device_class : classes) Dispatch(device_class);
  return absl::OkStatus();
}

Tracker::Impl::RequestPtr Tracker::Impl::AddRequest(Queue& queue, const v1::MeasureRequest& message,
                                                    int64_t submitted_at) {
  auto entry = std::make_shared<Request>();
  entry->message = message;
  entry->queue = &queue;
  entry->device_class = ClassOf(message.target(), message.device_model());
  entry->submitted_at = submitted_at;
  entry->submitted = Now() - std::chrono::nanoseconds(std::max<int64_t>(0, absl::GetCurrentTimeNanos() - submitted_at));
  if (message.queue_timeout_seconds() > 0) {
    entry->give_up = entry->submitted + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                            std::min(message.queue_timeout_seconds(), 1e8)));
  }
  entry->bytes = message.ByteSizeLong();
  Charge(queue, 1, static_cast<int64_t>(entry->bytes));
  queue.unfinished[message.id()] = entry;
  return entry;
}

void Tracker::Impl::Acknowledge(Queue& queue, uint64_t sequence) {
  if (queue.results.empty() || queue.results.front().sequence() > sequence) return;
  while (!queue.results.empty() && queue.results.front().sequence() <= sequence) {
    Charge(queue, -1, -static_cast<int64_t>(queue.results.front().ByteSizeLong()));
    queue.results.pop_front();
  }
  if (store_ != nullptr) store_->EraseResults(queue.id, sequence);
}

void Tracker::Impl::Next(const v1::NextRequest& request, Reply<v1::NextResponse> reply) {
  absl::StatusOr<Queue*> found = FindQueue(request.queue());
  if (!found.ok()) {
    answers_.push_back([reply = std::move(reply), status = found.status()] { reply(status, {}); });
    return;
  }
  Queue& queue = **found;
  AnswerNext(queue);  // an older call
  if (request.incarnation() == 0 || request.incarnation() == incarnation_) Acknowledge(queue, request.acknowledged());
  queue.waiting = std::move(reply);
  queue.max_results = request.max_results();
  queue.wait_until =
      Now() + std::min<Clock::duration>(std::chrono::milliseconds(request.max_wait_ms()), options_.max_wait);
  if (!queue.results.empty() || request.max_wait_ms() == 0) AnswerNext(queue);
}

void Tracker::Impl::AnswerNext(Queue& queue, absl::Status status) {
  if (queue.waiting == nullptr) return;
  v1::NextResponse response;
  size_t limit = options_.max_results_per_answer;
  if (queue.max_results > 0) limit = std::min<size_t>(limit, queue.max_results);
  size_t bytes = 0;
  for (const v1::MeasureResult& result : queue.results) {
    if (!status.ok() || static_cast<size_t>(response.results_size()) >= limit || bytes > options_.max_answer_bytes)
      break;
    *response.add_results() = result;
    bytes += result.ByteSizeLong();
  }
  response.set_unfinished(static_cast<uint32_t>(queue.unfinished.size()));
  response.set_incarnation(incarnation_);
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
  Acknowledge(queue, ~uint64_t{0} >> 1);
  AnswerNext(queue, absl::NotFoundError("this queue was closed"));
  if (store_ != nullptr) store_->EraseQueue(queue.id);
  LogEvent(LogLevel::kInfo, "queue_closed",
           {{"job", queue.job()},
            {"queue", ShortId(id)},
            {"name", queue.open.name()},
            {"done", std::to_string(queue.done.size())}});
  if (const auto usage = usage_.find(queue.open.owner()); usage != usage_.end() && --usage->second.queues == 0)
    usage_.erase(usage);
  queues_.erase(found);
}

void Tracker::Impl::CancelRequest(RequestPtr request, const std::string& reason) {
  Unqueue(request);
  if (auto holder = sessions_.find(request->session); request->lease != 0 && holder != sessions_.end()) {
    Session& session = *holder->second;
    if (const RequestPtr heir = Heir(request); heir != nullptr && session.leases.contains(request->lease)) {
      HandOver(session, request->lease, heir);
    } else if (session.leases.contains(request->lease)) {
      EraseLease(session, request->lease);
      session.revoked.push_back(request->lease);
      AnswerLease(session);
    }
  }
  v1::MeasureResult result;
  result.mutable_cancelled()->set_reason(reason);
  Finish(request, std::move(result));
}

void Tracker::Impl::Deliver(const RequestPtr& request, v1::MeasureResult result) {
  Queue& queue = *request->queue;
  Unqueue(request);
  queue.unfinished.erase(request->message.id());
  request->lease = ~uint64_t{0};  // no longer pending
  queue.done.Insert(request->message.id());
  queue.done.KeepRanges(kDoneRanges);
  result.set_id(request->message.id());
  result.set_sequence(queue.next_sequence++);
  result.set_attempts(request->attempts);
  result.mutable_times()->set_queued_seconds(request->waited);
  if (IsInfrastructure(result)) {
    LogTrial(LogLevel::kWarning, "trial_ends", *request,
             {{"outcome", OutcomeName(result)}, {"why", result.error().text()}});
  } else {
    LogTrial(LogLevel::kDebug, "trial_ends", *request, {{"outcome", OutcomeName(result)}});
  }
  if (store_ != nullptr) {
    store_->EraseRequest(queue.id, result.id());
    store_->PutResult(queue.id, result);
  }
  Charge(queue, 0, static_cast<int64_t>(result.ByteSizeLong()) - static_cast<int64_t>(request->bytes));
  queue.results.push_back(std::move(result));
  AnswerNext(queue);
}

void Tracker::Impl::LogTrial(LogLevel level, const std::string& event, const Request& request,
                             std::vector<std::pair<std::string, std::string>> more) {
  if (!Logs(level)) return;
  std::vector<std::pair<std::string, std::string>> fields = {{"job", request.queue->job()},
                                                             {"trial", std::to_string(request.message.id())},
                                                             {"queue", ShortId(request.queue->id)},
                                                             {"attempt", std::to_string(request.attempts)}};
  fields.insert(fields.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  LogEvent(level, event, fields);
}

// ---- time

void Tracker::Impl::ExpireLeases(Session& session, Clock::time_point now) {
  const auto overdue = std::find_if(session.leases.begin(), session.leases.end(),
                                    [&](const auto& entry) { return entry.second.last <= now; });
  if (overdue != session.leases.end()) {
    const uint64_t id = overdue->first;
    const RequestPtr request = overdue->second.request;
    const std::string why = "it did not answer lease " + std::to_string(id) + " within the deadlines of its request";
    EraseLease(session, id);
    ++expired_;
    session.revoked.push_back(id);
    Quarantine(session, why);
    return Retry(request, InfrastructureResult(MeasureStage::kQueue, "worker '" + session.status.name() + "': " + why));
  }
  std::vector<uint64_t> over;
  for (const auto& [id, lease] : session.leases) {
    if (lease.expires <= now) over.push_back(id);
  }
  for (uint64_t id : over) {
    RequestPtr request = session.leases[id].request;
    EraseLease(session, id);
    ++expired_;
    session.revoked.push_back(id);
    Retry(request,
          InfrastructureResult(MeasureStage::kQueue, "worker '" + session.status.name() + "' did not renew its lease"));
  }
  if (!over.empty()) AnswerLease(session);
}

void Tracker::Impl::Tick() {
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
  EndQuarantines(now);
  ForgetRecent(now);
  ExcludeDrifting(now);
  MendStore(now);
}

void Tracker::Impl::Shutdown() {
  shut_ = true;
  absl::Status status = Running();
  for (auto& [id, session] : sessions_) AnswerLease(*session, status);
  for (auto& [id, queue] : queues_) AnswerNext(*queue, status);
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
