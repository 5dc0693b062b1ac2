#include "worker/tracker/journal.h"

#include <set>
#include <vector>

#include "worker/rpc/log.h"

namespace diapason::tracker {
namespace {

constexpr std::chrono::seconds kMendEvery{5};

}  // namespace

TrackerState::Lease StoredLease(const Session& session, uint64_t id, const LeaseEntry& lease) {
  return {id,
          session.id,
          lease.device,
          lease.batch,
          lease.request->queue->id,
          lease.request->message.id(),
          static_cast<int64_t>(lease.request->waited * 1e9)};
}

v1::StoredAttempts StoredAttemptsOf(const Request& request, uint32_t attempts) {
  v1::StoredAttempts stored;
  stored.set_attempts(attempts);
  for (const std::string& worker : request.tried) stored.add_tried(worker);
  stored.mutable_lost_runners()->insert(request.lost_runners.begin(), request.lost_runners.end());
  return stored;
}

v1::StoredSession StoredSessionOf(const Session& session) {
  v1::StoredSession stored;
  *stored.mutable_worker() = session.worker;
  *stored.mutable_states() = session.status.states();
  return stored;
}

Journal::Journal(std::unique_ptr<TrackerStore> store, std::chrono::milliseconds pause) : store_(std::move(store)) {
  if (store_ != nullptr && pause.count() > 0) writer_ = std::make_unique<TrackerWriter>(*store_, pause);
}

TrackerWriter::Answers Journal::EndTurn() {
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

void Journal::PutQueue(const Queue& queue) {
  if (store_ != nullptr) store_->PutQueue(queue.id, queue.open);
}

void Journal::EraseQueue(const Queue& queue) {
  if (store_ != nullptr) store_->EraseQueue(queue.id);
}

void Journal::PutRequest(const Request& request) {
  if (store_ != nullptr) store_->PutRequest(request.queue->id, request.message, request.submitted_at);
}

void Journal::PutAttempts(const Request& request) {
  if (store_ == nullptr) return;
  store_->PutAttempts(request.queue->id, request.message.id(), StoredAttemptsOf(request, request.attempts));
}

void Journal::PutResult(const Queue& queue, const v1::MeasureResult& result) {
  if (store_ == nullptr) return;
  store_->EraseRequest(queue.id, result.id());
  store_->PutResult(queue.id, result);
}

void Journal::EraseResults(const Queue& queue, uint64_t sequence) {
  if (store_ != nullptr) store_->EraseResults(queue.id, sequence);
}

void Journal::PutSession(const Session& session) {
  if (store_ != nullptr) store_->PutSession(session.id, StoredSessionOf(session));
}

void Journal::EraseSession(const std::string& id) {
  if (store_ != nullptr) store_->EraseSession(id);
}

void Journal::PutLease(const Session& session, uint64_t id) {
  if (store_ != nullptr) store_->PutLease(StoredLease(session, id, session.leases.at(id)));
}

void Journal::EraseLease(uint64_t id) {
  if (store_ != nullptr) store_->EraseLease(id);
}

void Journal::Mend(Clock::time_point now, const std::function<TrackerState()>& snapshot) {
  const absl::Status written = store_ == nullptr ? absl::OkStatus() : store_->status();
  if (written.ok()) return;
  if (!mend_at_.has_value()) {
    LogEvent(LogLevel::kError, "state_not_written", {{"why", std::string(written.message())}});
    mend_at_ = now + kMendEvery;
  }
  if (now < *mend_at_) return;
  mend_at_ = now + kMendEvery;
  if (!store_->Rewrite(snapshot()).ok()) return;
  mend_at_.reset();
  LogEvent(LogLevel::kInfo, "state_written_again", {});
}

}  // namespace diapason::tracker
