// The jobs of a service, their states and their way to the disk.
//
// A job is queued, is begun on a thread of its own, and ends as done, failed or cancelled, or is queued again when the
// fleet failed it; one that has ended may be resumed. Each change is written before a call returns that made it, and
// gets the job a new version.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "diapason/v1/tuning.pb.h"
#include "service/job_store.h"

namespace diapason {

struct JobLimits {
  int running = 4;       // jobs at once
  int unfinished = 256;  // queued and running ones
  int unfinished_per_token = 128;
  int jobs = 16384;  // those that have ended included
  // A job that the fleet fails is tried again after so long.
  double retry_seconds = 10;
};

// Safe from any thread.
class JobTable {
 public:
  using Clock = std::chrono::steady_clock;

  // A job and, while it runs, its thread. Who has one that runs may read `stop`; all else is the table's.
  struct Entry {
    std::atomic<bool> stop{false};

   private:
    friend class JobTable;
    v1::Job job_;
    bool running_ = false;  // its thread works; the thread itself is joined by the next one to need it
    std::thread thread_;
    Clock::time_point not_before_{};  // after a fault of the fleet
    Clock::time_point saved_{};
  };

  explicit JobTable(const JobLimits& limits) : limits_(limits) {}

  // Takes the jobs of an earlier service up: those that were running wait again, but for those that shall not be begun
  // again. REQUIRES: no other call was made.
  absl::Status Open(std::unique_ptr<JobStore> store);
  // All jobs are to stop; whoever waits in RunNext and Get returns. Idempotent.
  void Stop();
  // Waits for the threads of all jobs. REQUIRES: Stop was called, and RunNext is not called again.
  void Join();

  // 0: there is none.
  int64_t FindKey(const std::string& key) const;
  // ResourceExhausted when there may not be one more unfinished job of `owner`.
  absl::Status CheckRoom(const std::string& owner) const;
  // The id of a new job, which waits to be begun. ResourceExhausted; errors of the disk.
  absl::StatusOr<int64_t> Add(const std::string& key, const v1::TuneSpec& spec, const std::string& owner);
  std::vector<v1::Job> List(int64_t before, size_t most_bytes, int64_t& next) const;
  absl::StatusOr<v1::Job> Get(int64_t id, uint64_t seen, std::chrono::milliseconds wait);
  absl::StatusOr<v1::Job> Cancel(int64_t id);
  // `trials`: a new limit; 0: as before. `check` may refuse the job as it is now.
  absl::StatusOr<v1::Job> Resume(int64_t id, int64_t trials, const std::string& owner,
                                 const std::function<absl::Status(const v1::TuneSpec& spec)>& check);
  // False when there was none. FailedPrecondition: it has not ended.
  absl::StatusOr<bool> Erase(int64_t id);
  // Hashes of the models that unfinished jobs have.
  std::set<std::string> ModelsInUse() const;

  // Waits until a job may be begun, by priority, then by age, and has a thread of its own call `run`, which ends with
  // End. False when the table stops.
  bool RunNext(const std::function<void(Entry& entry, v1::Job job)>& run);
  // Notes that the job is being prepared, which may end the service, until the end of it. Unavailable: it cannot be
  // written.
  absl::Status BeginPreparation(Entry& entry);
  void EndPreparation(Entry& entry);
  void SetProgress(Entry& entry, const v1::JobProgress& progress);
  void SetNetworkCheck(Entry& entry, v1::NetworkCheckOutcome outcome);
  // `stopped`: why it is done, or why not.
  void End(Entry& entry, const absl::StatusOr<std::string>& stopped);

 private:
  absl::Status CheckRoomFor(const std::string& owner) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Entry*> Find(int64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The queued job to begin next; null: none may be now.
  Entry* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What changed is written, or logged why not.
  absl::Status Save(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What could not be written has not happened.
  absl::Status SaveOrRestore(Entry& entry, const v1::Job& before) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Changed(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    entry.job_.set_version(++version_);
    changed_.NotifyAll();
  }

  const JobLimits limits_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<JobStore> store_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, std::unique_ptr<Entry>> jobs_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace diapason
