// What `diapason tracker --state F.db` keeps over a restart: queues, requests, results, sessions and leases.
//
// Every change of a turn of the tracker is in one transaction, committed before the turn's answers are sent, so that a
// tracker that was killed knows at its next start all that it had answered. A power cut may lose the last moments
// (write-ahead log, synchronous=NORMAL: a disk's sync for each of thousands of leases a second would be the limit of
// the fleet); `incarnation` of measure.proto mends that.
//
//   table     | key              | holds
//   queues    | id               | OpenRequest
//   requests  | queue, id        | MeasureRequest, when it was submitted, StoredAttempts
//   results   | queue, sequence  | MeasureResult, not acknowledged
//   sessions  | id               | StoredSession
//   leases    | id               | session, device, batch, queue and id of the request
//
// The file's application_id is "Dptr", user_version the version of the tables. A file of another version is refused.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/v1/measure.pb.h"
#include "diapason/v1/state.pb.h"

namespace diapason {

// All that a tracker has in store, in no order but that of the keys; requests by the time of their submission.
struct TrackerState {
  struct Queue {
    std::string id;
    v1::OpenRequest open;
  };
  struct Request {
    std::string queue;
    v1::MeasureRequest message;
    int64_t submitted = 0;  // Unix nanoseconds
    v1::StoredAttempts attempts;
  };
  struct Result {
    std::string queue;
    v1::MeasureResult message;  // with its sequence number
  };
  struct Session {
    std::string id;
    v1::StoredSession message;
  };
  struct Lease {
    uint64_t id = 0;
    std::string session, device;
    uint64_t batch = 0;
    std::string queue;
    uint64_t request = 0;
  };
  std::vector<Queue> queues;
  std::vector<Request> requests;
  std::vector<Result> results;
  std::vector<Session> sessions;
  std::vector<Lease> leases;
};

// One thread at a time. A change that cannot be written (full disk) is remembered as `status`; from then on nothing is
// written until Rewrite succeeds.
class TrackerStore {
 public:
  // Makes the file when there is none. FailedPrecondition: another file, or of another version. Unavailable: another
  // tracker has it.
  static absl::StatusOr<std::unique_ptr<TrackerStore>> Open(const std::string& path);
  ~TrackerStore();

  absl::StatusOr<TrackerState> Load();

  void PutQueue(const std::string& id, const v1::OpenRequest& open);
  // With all that belongs to it.
  void EraseQueue(const std::string& id);
  void PutRequest(const TrackerState::Request& request);
  void PutAttempts(const std::string& queue, uint64_t id, const v1::StoredAttempts& attempts);
  void EraseRequest(const std::string& queue, uint64_t id);
  void PutResult(const std::string& queue, const v1::MeasureResult& result);
  // Those up to this sequence number.
  void EraseResults(const std::string& queue, uint64_t sequence);
  void PutSession(const std::string& id, const v1::StoredSession& session);
  // With its leases.
  void EraseSession(const std::string& id);
  void PutLease(const TrackerState::Lease& lease);
  void EraseLease(uint64_t id);

  // Ends the turn.
  void Commit();
  // OK while all changes are in the file.
  const absl::Status& status() const { return status_; }
  // Replaces everything by `state`; the store works again when that succeeds.
  absl::Status Rewrite(const TrackerState& state);

 private:
  struct Statements;
  TrackerStore();
  absl::Status Prepare(const std::string& path);
  template <typename... Values>
  void Write(int statement, const Values&... values);

  std::unique_ptr<Statements> s_;
  bool in_turn_ = false;
  absl::Status status_;
};

}  // namespace diapason
