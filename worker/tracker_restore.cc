// What is written to the store, and how a tracker goes on from it.
#include <utility>

#include "absl/time/clock.h"
#include "base/check.h"
#include "worker/log.h"
#include "worker/tracker_impl.h"

namespace diapason {
namespace {

constexpr std::chrono::seconds kMendEvery{5};

}  // namespace

TrackerWriter::Answers Tracker::Impl::Store() {
  TrackerWriter::Answers answers = std::exchange(answers_, {});
  if (store_ == nullptr) return answers;
  if (writer_ != nullptr) return writer_->Add(store_->Take(), std::move(answers));
  if (TrackerStore::Changes changes = store_->Take(); !changes.empty()) {
    std::vector<TrackerStore::Changes> turn;
    turn.push_back(std::move(changes));
    store_->Write(turn);
    store_->Tidy();
  }
  return answers;
}

void Tracker::Impl::SaveSession(const Session& session) {
  if (store_ == nullptr) return;
  v1::StoredSession stored;
  *stored.mutable_worker() = session.worker;
  *stored.mutable_states() = session.status.states();
  store_->PutSession(session.id, stored);
}

TrackerState::Lease Tracker::Impl::StoredLease(const Session& session, uint64_t id, const LeaseEntry& lease) {
  return {id,
          session.id,
          lease.device,
          lease.batch,
          lease.request->queue->id,
          lease.request->message.id(),
          static_cast<int64_t>(lease.request->waited * 1e9)};
}

void Tracker::Impl::SaveLease(const Session& session, uint64_t id) {
  if (store_ == nullptr) return;
  store_->PutLease(StoredLease(session, id, session.leases.at(id)));
}

void Tracker::Impl::EraseLease(Session& session, uint64_t id) {
  session.leases.erase(id);
  if (store_ != nullptr) store_->EraseLease(id);
}

namespace {

v1::StoredAttempts Stored(uint32_t attempts, const std::set<std::string>& tried,
                          const std::map<std::string, std::string>& lost_runners) {
  v1::StoredAttempts stored;
  stored.set_attempts(attempts);
  for (const std::string& worker : tried) stored.add_tried(worker);
  stored.mutable_lost_runners()->insert(lost_runners.begin(), lost_runners.end());
  return stored;
}

absl::Status CheckStored(const v1::RegisterRequest& worker) {
  for (const v1::DeviceDescription& device : worker.devices()) RETURN_IF_ERROR(CheckDevice(worker.name(), device));
  return absl::OkStatus();
}

}  // namespace

void Tracker::Impl::SaveAttempts(const Request& request) {
  if (store_ == nullptr) return;
  store_->PutAttempts(request.queue->id, request.message.id(),
                      Stored(request.attempts, request.tried, request.lost_runners));
}

TrackerState Tracker::Impl::Snapshot() const {
  TrackerState state;
  for (const auto& [id, queue] : queues_) {
    state.queues.push_back({id, queue->open});
    for (const auto& [number, request] : queue->unfinished) {
      // A lease counts as an attempt by itself.
      uint32_t ended = request->attempts - (request->lease != 0 ? 1 : 0);
      state.requests.push_back(
          {id, request->message, request->submitted_at, Stored(ended, request->tried, request->lost_runners)});
    }
    for (const v1::MeasureResult& result : queue->results) state.results.push_back({id, result});
  }
  for (const auto& [id, session] : sessions_) {
    TrackerState::Session& stored = state.sessions.emplace_back();
    stored.id = id;
    *stored.message.mutable_worker() = session->worker;
    *stored.message.mutable_states() = session->status.states();
    for (const auto& [number, lease] : session->leases) {
      state.leases.push_back(StoredLease(*session, number, lease));
    }
  }
  return state;
}

void Tracker::Impl::MendStore(Clock::time_point now) {
  const absl::Status written = store_ == nullptr ? absl::OkStatus() : store_->status();
  if (written.ok()) return;
  if (!mend_store_at_.has_value()) {
    LogEvent(LogLevel::kError, "state_not_written", {{"why", std::string(written.message())}});
    mend_store_at_ = now + kMendEvery;
  }
  if (now < *mend_store_at_) return;
  mend_store_at_ = now + kMendEvery;
  if (!store_->Rewrite(Snapshot()).ok()) return;
  mend_store_at_.reset();
  LogEvent(LogLevel::kInfo, "state_written_again", {});
}

absl::Status Tracker::Impl::Restore() {
  if (store_ == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(TrackerState state, store_->Load());
  for (const TrackerState::Queue& queue : state.queues) AddQueue(queue.id, queue.open);
  for (TrackerState::Request& stored : state.requests) {
    auto queue = queues_.find(stored.queue);
    if (queue == queues_.end()) continue;
    RequestPtr request = AddRequest(*queue->second, stored.message, stored.submitted);
    request->attempts = stored.attempts.attempts();
    request->tried = {stored.attempts.tried().begin(), stored.attempts.tried().end()};
    request->lost_runners = {stored.attempts.lost_runners().begin(), stored.attempts.lost_runners().end()};
  }
  for (TrackerState::Result& stored : state.results) {
    auto found = queues_.find(stored.queue);
    if (found == queues_.end()) continue;
    Queue& queue = *found->second;
    Charge(queue, 1, static_cast<int64_t>(stored.message.ByteSizeLong()));
    queue.done.Insert(stored.message.id());
    queue.next_sequence = std::max(queue.next_sequence, stored.message.sequence() + 1);
    queue.results.push_back(std::move(stored.message));
  }
  for (const TrackerState::Session& stored : state.sessions) {
    if (absl::Status checked = CheckStored(stored.message.worker()); !checked.ok()) {
      // Written by a tracker that did not look. Its leases are granted again, to others.
      LogEvent(LogLevel::kWarning, "session_not_restored", {{"why", std::string(checked.message())}});
      if (store_ != nullptr) store_->EraseSession(stored.id);
      continue;
    }
    Session& session = AddSession(stored.id, stored.message.worker());
    *session.status.mutable_states() = stored.message.states();
    for (const v1::DeviceStatus& device : stored.message.states())
      SetDeviceState(session, device.device(), device.state());
    session.batch = static_cast<uint64_t>(absl::GetCurrentTimeNanos());  // above all that it had
  }
  for (const TrackerState::Lease& stored : state.leases) {
    next_lease_ = std::max(next_lease_, stored.id + 1);
    auto session = sessions_.find(stored.session);
    auto queue = queues_.find(stored.queue);
    if (session == sessions_.end() || queue == queues_.end()) continue;
    auto request = queue->second->unfinished.find(stored.request);
    if (request == queue->second->unfinished.end()) continue;
    RequestPtr entry = request->second;
    entry->lease = stored.id;
    entry->session = stored.session;
    entry->waited = static_cast<double>(stored.waited) * 1e-9;
    ++entry->attempts;
    entry->tried.insert(session->second->status.worker_id());
    session->second->leases[stored.id] = {entry,
                                          stored.device,
                                          Now() + options_.lease,
                                          stored.batch,
                                          LastMoment(*session->second, *entry),
                                          entry->message.best_seconds()};
    Join(entry);
    Park(entry);
  }
  for (auto& [id, queue] : queues_) {
    std::vector<RequestPtr> pending;
    for (const auto& [number, request] : queue->unfinished) {
      if (request->lease == 0) pending.push_back(request);
    }
    std::stable_sort(pending.begin(), pending.end(),
                     [](const RequestPtr& a, const RequestPtr& b) { return a->submitted_at < b->submitted_at; });
    for (const RequestPtr& request : pending) {
      Join(request);
      if (!request->parked) Enqueue(request, /*in_front=*/false);
    }
  }
  LogEvent(LogLevel::kInfo, "state_restored",
           {{"queues", std::to_string(queues_.size())},
            {"requests", std::to_string(state.requests.size())},
            {"workers", std::to_string(sessions_.size())},
            {"leases", std::to_string(state.leases.size())}});
  return absl::OkStatus();
}

}  // namespace diapason
