#include "worker/tracker/queue_table.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "worker/process/convert.h"

namespace diapason::tracker {
namespace {

// Of the numbers of what a queue has done: a coordinator that counts its requests has a few.
constexpr size_t kDoneRanges = 4096;

}  // namespace

absl::Status QueueTable::CheckOpen(const std::string& owner) const {
  if (queues_.size() >= options_.max_queues) {
    return absl::ResourceExhaustedError("the tracker has " + std::to_string(queues_.size()) +
                                        " queues and takes no more");
  }
  const auto usage = usage_.find(owner);
  if (!owner.empty() && usage != usage_.end() && usage->second.queues >= options_.max_queues_per_token) {
    return absl::ResourceExhaustedError("the token of '" + owner + "' has " + std::to_string(usage->second.queues) +
                                        " queues and may open no more; close some");
  }
  return absl::OkStatus();
}

Queue& QueueTable::Add(const std::string& id, const v1::OpenRequest& open) {
  auto queue = std::make_unique<Queue>();
  queue->id = id;
  queue->number = next_number_++;
  queue->open = open;
  queue->last_call = clock_.Now();
  if (!open.owner().empty()) ++usage_[open.owner()].queues;
  // A newcomer starts with the others: neither owed for the time before it nor behind.
  bool first = true;
  for (const auto& [other_id, other] : queues_) {
    if (!other->unfinished.empty()) queue->pass = first ? other->pass : std::min(queue->pass, other->pass);
    if (!other->unfinished.empty()) first = false;
  }
  return *(queues_[id] = std::move(queue));
}

Queue* QueueTable::Find(const std::string& id) const {
  const auto found = queues_.find(id);
  return found == queues_.end() ? nullptr : found->second.get();
}

void QueueTable::Erase(const std::string& id) {
  const auto found = queues_.find(id);
  if (found == queues_.end()) return;
  const auto usage = usage_.find(found->second->open.owner());
  if (usage != usage_.end() && --usage->second.queues == 0) usage_.erase(usage);
  queues_.erase(found);
}

void QueueTable::Charge(const Queue& queue, int64_t requests, int64_t bytes) {
  stored_bytes_ += static_cast<size_t>(bytes);
  if (queue.open.owner().empty()) return;
  Usage& usage = usage_[queue.open.owner()];
  usage.requests += requests;
  usage.bytes += bytes;
}

absl::Status QueueTable::CheckRequest(const v1::MeasureRequest& request) const {
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

absl::Status QueueTable::CheckRoom(const Queue& queue, size_t requests, size_t bytes) const {
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

RequestPtr QueueTable::AddRequest(Queue& queue, const v1::MeasureRequest& message, int64_t submitted_at) {
  auto entry = std::make_shared<Request>();
  entry->message = message;
  entry->queue = &queue;
  entry->device_class = ClassOf(message.target(), message.device_model());
  entry->submitted_at = submitted_at;
  entry->submitted =
      clock_.Now() - std::chrono::nanoseconds(std::max<int64_t>(0, absl::GetCurrentTimeNanos() - submitted_at));
  if (message.queue_timeout_seconds() > 0) {
    entry->give_up = entry->submitted + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(
                                            std::min(message.queue_timeout_seconds(), 1e8)));
  }
  entry->bytes = message.ByteSizeLong();
  Charge(queue, 1, static_cast<int64_t>(entry->bytes));
  queue.unfinished[message.id()] = entry;
  return entry;
}

void QueueTable::AddResult(Queue& queue, v1::MeasureResult result) {
  Charge(queue, 1, static_cast<int64_t>(result.ByteSizeLong()));
  queue.done.Insert(result.id());
  queue.next_sequence = std::max(queue.next_sequence, result.sequence() + 1);
  queue.results.push_back(std::move(result));
}

void QueueTable::Deliver(RequestPtr request, v1::MeasureResult result) {
  Queue& queue = *request->queue;
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
  journal_.PutResult(queue, result);
  Charge(queue, 0, static_cast<int64_t>(result.ByteSizeLong()) - static_cast<int64_t>(request->bytes));
  queue.results.push_back(std::move(result));
  Answer(queue);
}

void QueueTable::Acknowledge(Queue& queue, uint64_t sequence) {
  if (queue.results.empty() || queue.results.front().sequence() > sequence) return;
  while (!queue.results.empty() && queue.results.front().sequence() <= sequence) {
    Charge(queue, -1, -static_cast<int64_t>(queue.results.front().ByteSizeLong()));
    queue.results.pop_front();
  }
  journal_.EraseResults(queue, sequence);
}

void QueueTable::Wait(Queue& queue, const v1::NextRequest& request, Tracker::Reply<v1::NextResponse> reply) {
  Answer(queue);  // an older call
  if (request.incarnation() == 0 || request.incarnation() == incarnation_) Acknowledge(queue, request.acknowledged());
  queue.waiting = std::move(reply);
  queue.max_results = request.max_results();
  queue.wait_until =
      clock_.Now() + std::min<Clock::duration>(std::chrono::milliseconds(request.max_wait_ms()), options_.max_wait);
  if (!queue.results.empty() || request.max_wait_ms() == 0) Answer(queue);
}

void QueueTable::Answer(Queue& queue, absl::Status status) {
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
  queue.last_call = clock_.Now();
  journal_.Answer([reply = std::exchange(queue.waiting, nullptr), status = std::move(status),
                   response = std::move(response)]() mutable { reply(status, std::move(response)); });
}

}  // namespace diapason::tracker
