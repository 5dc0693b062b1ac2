#include "worker/tracker/restore.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "worker/rpc/log.h"

namespace diapason::tracker {
namespace {

absl::Status CheckStored(const v1::RegisterRequest& worker) {
  for (const v1::DeviceDescription& device : worker.devices()) RETURN_IF_ERROR(CheckDevice(worker.name(), device));
  return absl::OkStatus();
}

void RestoreQueues(TrackerState& state, QueueTable& queues) {
  for (const TrackerState::Queue& queue : state.queues) queues.Add(queue.id, queue.open);
  for (const TrackerState::Request& stored : state.requests) {
    Queue* queue = queues.Find(stored.queue);
    if (queue == nullptr) continue;
    RequestPtr request = queues.AddRequest(*queue, stored.message, stored.submitted);
    request->attempts = stored.attempts.attempts();
    request->tried = {stored.attempts.tried().begin(), stored.attempts.tried().end()};
    request->lost_runners = {stored.attempts.lost_runners().begin(), stored.attempts.lost_runners().end()};
  }
  for (TrackerState::Result& stored : state.results) {
    if (Queue* queue = queues.Find(stored.queue)) queues.AddResult(*queue, std::move(stored.message));
  }
}

void RestoreSessions(const TrackerState& state, const RestoredParts& parts) {
  for (const TrackerState::Session& stored : state.sessions) {
    if (absl::Status checked = CheckStored(stored.message.worker()); !checked.ok()) {
      // Written by a tracker that did not look. Its leases are granted again, to others.
      LogEvent(LogLevel::kWarning, "session_not_restored", {{"why", std::string(checked.message())}});
      parts.journal.EraseSession(stored.id);
      continue;
    }
    Session& session = parts.workers.Add(stored.id, stored.message.worker(), /*fault=*/nullptr);
    *session.status.mutable_states() = stored.message.states();
    for (const v1::DeviceStatus& device : stored.message.states())
      parts.workers.SetDeviceState(session, device.device(), device.state());
    session.batch = static_cast<uint64_t>(absl::GetCurrentTimeNanos());  // above all that it had
  }
}

void RestoreLeases(const TrackerState& state, const RestoredParts& parts) {
  for (const TrackerState::Lease& stored : state.leases) {
    parts.leases.Skip(stored.id);
    Session* session = parts.workers.Find(stored.session);
    Queue* queue = parts.queues.Find(stored.queue);
    if (session == nullptr || queue == nullptr) continue;
    auto request = queue->unfinished.find(stored.request);
    if (request != queue->unfinished.end()) parts.leases.Restore(stored, *session, request->second);
  }
}

// By the time of their submission.
void RestoreLines(const Queues& queues, const Trials& trials) {
  for (const auto& [id, queue] : queues) {
    std::vector<RequestPtr> pending;
    for (const auto& [number, request] : queue->unfinished) {
      if (request->lease == 0) pending.push_back(request);
    }
    std::stable_sort(pending.begin(), pending.end(),
                     [](const RequestPtr& a, const RequestPtr& b) { return a->submitted_at < b->submitted_at; });
    for (const RequestPtr& request : pending) trials.Resume(request);
  }
}

}  // namespace

void Restore(TrackerState state, const RestoredParts& parts) {
  RestoreQueues(state, parts.queues);
  RestoreSessions(state, parts);
  RestoreLeases(state, parts);
  RestoreLines(parts.queues.queues(), parts.trials);
  LogEvent(LogLevel::kInfo, "state_restored",
           {{"queues", std::to_string(parts.queues.queues().size())},
            {"requests", std::to_string(state.requests.size())},
            {"workers", std::to_string(parts.workers.sessions().size())},
            {"leases", std::to_string(state.leases.size())}});
}

TrackerState Snapshot(const Queues& queues, const Sessions& sessions) {
  TrackerState state;
  for (const auto& [id, queue] : queues) {
    state.queues.push_back({id, queue->open});
    for (const auto& [number, request] : queue->unfinished) {
      // A lease counts as an attempt by itself.
      const uint32_t ended = request->attempts - (request->lease != 0 ? 1 : 0);
      state.requests.push_back({id, request->message, request->submitted_at, StoredAttemptsOf(*request, ended)});
    }
    for (const v1::MeasureResult& result : queue->results) state.results.push_back({id, result});
  }
  for (const auto& [id, session] : sessions) {
    state.sessions.push_back({id, StoredSessionOf(*session)});
    for (const auto& [number, lease] : session->leases) state.leases.push_back(StoredLease(*session, number, lease));
  }
  return state;
}

}  // namespace diapason::tracker
