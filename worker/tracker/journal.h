// What the calls of one turn of a tracker change and answer: the changes go to the store first.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/tracker/model.h"
#include "worker/tracker/store.h"
#include "worker/tracker/writer.h"

namespace diapason::tracker {

TrackerState::Lease StoredLease(const Session& session, uint64_t id, const LeaseEntry& lease);
v1::StoredAttempts StoredAttemptsOf(const Request& request, uint32_t attempts);
v1::StoredSession StoredSessionOf(const Session& session);

class Journal {
 public:
  // Without a store nothing is kept. `pause`: of the writer (TrackerOptions::store_pause); 0: EndTurn writes.
  Journal(std::unique_ptr<TrackerStore> store, std::chrono::milliseconds pause);

  bool keeps() const { return store_ != nullptr; }
  // REQUIRES: keeps().
  absl::StatusOr<TrackerState> Load() { return store_->Load(); }

  // To be called when all that was recorded until the end of the turn is stored.
  void Answer(std::function<void()> answer) { answers_.push_back(std::move(answer)); }
  // Stores the turn's changes, or gives them to the writer; returns the answers that may go out.
  TrackerWriter::Answers EndTurn();

  void PutQueue(const Queue& queue);
  void EraseQueue(const Queue& queue);
  void PutRequest(const Request& request);
  void PutAttempts(const Request& request);
  // The result of a request takes its place.
  void PutResult(const Queue& queue, const v1::MeasureResult& result);
  // Those up to this sequence number.
  void EraseResults(const Queue& queue, uint64_t sequence);
  void PutSession(const Session& session);
  // Not its leases.
  void EraseSession(const std::string& id);
  void PutLease(const Session& session, uint64_t id);
  void EraseLease(uint64_t id);

  // After a write that failed: tries now and then to write everything.
  void Mend(Clock::time_point now, const std::function<TrackerState()>& snapshot);

 private:
  TrackerWriter::Answers answers_;
  std::unique_ptr<TrackerStore> store_;    // null: nothing is kept
  std::unique_ptr<TrackerWriter> writer_;  // null: each turn writes its own changes
  std::optional<Clock::time_point> mend_at_;
};

}  // namespace diapason::tracker
