// What `diapason tracker --state F.db` keeps over a restart: queues, requests, results, sessions and leases.
//
// The changes of one turn of the tracker, or of all that happened while the transaction before was written
// (worker/tracker/writer.h), are in one transaction, committed before the answers that rest on them are sent, so that a
// tracker that was killed knows at its next start all that it had answered. A power cut may lose the last moments
// (write-ahead log, synchronous=NORMAL: a disk's sync for each group would be the limit of the fleet); `incarnation`
// of measure.proto fixes that.
//
//   table     | key              | holds
//   queues    | id               | OpenRequest
//   requests  | queue, id        | MeasureRequest, when it was submitted, StoredAttempts
//   results   | queue, sequence  | MeasureResult, not acknowledged
//   sessions  | id               | StoredSession
//   leases    | id               | session, device, batch, queue and id of the request, how long that had waited (ns)
//
// The file's application_id is "Dptr", user_version the version of the tables, now 2. A file of version 1, whose leases
// do not tell how long their requests had waited (0), becomes one of version 2 when it is opened; a newer one is
// refused.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
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
    int64_t waited = 0;  // nanoseconds from the request's submission to the lease
  };
  std::vector<Queue> queues;
  std::vector<Request> requests;
  std::vector<Result> results;
  std::vector<Session> sessions;
  std::vector<Lease> leases;
};

// Changes are recorded by Put.. and Erase.., taken in turns by Take, and written by Write. A change that cannot be
// written (full disk) is remembered as `status`; from then on nothing is written until Rewrite succeeds.
//
// Recording, Take, Load and Rewrite: one thread at a time. Write, Tidy and status are safe from any thread meanwhile,
// and status never waits for the disk.
class TrackerStore {
 public:
  // What one turn changed, in order. One string: what is recorded by one thread and freed by another is little to
  // allocate.
  class Changes {
   public:
    bool empty() const { return bytes_.empty(); }

   private:
    friend class TrackerStore;
    uint64_t epoch_ = 0;
    // Of each change: the statement's number, then its values, each a letter ('i', 't' or 'b'), a number of 8 bytes
    // (the integer, or the length) and, of text and blobs, their bytes.
    std::string bytes_;
  };

  // Makes the file when there is none, and brings an older one to this version. FailedPrecondition: another file, or of
  // a newer version. Unavailable: another tracker has it.
  static absl::StatusOr<std::unique_ptr<TrackerStore>> Open(const std::string& path);
  // What was recorded and not taken is not written.
  ~TrackerStore();

  absl::StatusOr<TrackerState> Load();

  void PutQueue(const std::string& id, const v1::OpenRequest& open);
  // With its requests and results; leases are erased one by one.
  void EraseQueue(const std::string& id);
  // `submitted`: Unix nanoseconds.
  void PutRequest(const std::string& queue, const v1::MeasureRequest& request, int64_t submitted);
  void PutAttempts(const std::string& queue, uint64_t id, const v1::StoredAttempts& attempts);
  void EraseRequest(const std::string& queue, uint64_t id);
  void PutResult(const std::string& queue, const v1::MeasureResult& result);
  // Those up to this sequence number.
  void EraseResults(const std::string& queue, uint64_t sequence);
  void PutSession(const std::string& id, const v1::StoredSession& session);
  // Not its leases.
  void EraseSession(const std::string& id);
  void PutLease(const TrackerState::Lease& lease);
  void EraseLease(uint64_t id);

  // What was recorded since the last Take.
  Changes Take() ABSL_NO_THREAD_SAFETY_ANALYSIS;
  // Writes turns in the order in which they were taken, in one transaction: all of them, or none and `status` says why.
  void Write(const std::vector<Changes>& turns);
  // Moves what the write-ahead log has into the tables when it has grown long, which takes some ten milliseconds. To be
  // called after each Write: it has the disk take the log meanwhile, little by little.
  void Tidy();
  // OK while all that Write was given is in the file.
  absl::Status status() const;
  // Replaces everything by `state`, what was recorded or taken before included; the store works again when that
  // succeeds.
  absl::Status Rewrite(const TrackerState& state);

 private:
  struct File;
  TrackerStore();
  absl::Status Prepare(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  template <typename... Values>
  void Record(int statement, const Values&... values);
  absl::Status WriteAll(const Changes& changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetStatus(absl::Status status);
  bool FreePages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status InTransaction(const std::function<absl::Status()>& write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Changes recorded_;
  Mutex mutex_;  // held while the disk works
  std::unique_ptr<File> file_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last Rewrite: turns of older ones are in it
  mutable Mutex status_mutex_;
  absl::Status status_ ABSL_GUARDED_BY(status_mutex_);
};

}  // namespace diapason
