// The client of a coordinator service (`diapason serve`): its jobs, and the records of its history.
//
// A call to a service that does not answer is repeated with backoff until `give_up_seconds` have passed; then it
// returns Unavailable with the address. An address may be a list, "host:port,host:port", of services with one history:
// each attempt goes to the next of them. Calls that change jobs are safe to repeat. Those about one job return NotFound
// for an id that the service does not have, Delete excepted. Other errors are the service's own (tuning.proto).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/history.h"
#include "service/tune_spec.h"
#include "worker/rpc/security.h"

namespace diapason {

namespace v1 {
class Job;
}

struct ServiceClientOptions {
  double give_up_seconds = 0;  // 0: 10, or with several addresses 60, since another service may have to take over
  std::shared_ptr<const ClientCredentials> credentials;
};

// Safe from any thread.
class ServiceClient {
 public:
  // FailedPrecondition: it is no such service, or client and service have no version of the protocol in common.
  static absl::StatusOr<std::unique_ptr<ServiceClient>> Connect(const std::string& address,
                                                                ServiceClientOptions options = {});
  ~ServiceClient();
  ServiceClient(const ServiceClient&) = delete;
  ServiceClient& operator=(const ServiceClient&) = delete;

  // Address of the tracker that the service uses.
  const std::string& tracker() const;

  // Uploads the model if it is a file that the service does not have, and queues the job. Returns its id.
  // InvalidArgument: the file is larger than the service accepts. FailedPrecondition: the service is too old for an
  // option of the job.
  absl::StatusOr<int64_t> Submit(TuneSpec spec);
  // All jobs, the newest first.
  absl::StatusOr<std::vector<v1::Job>> List();
  // The job as it is now; or, if its version is not above `seen`, as it is once that has changed, or once
  // `wait_seconds` have passed.
  absl::StatusOr<v1::Job> Get(int64_t job, uint64_t seen = 0, double wait_seconds = 0);
  // Returns the job, which may still be running when this returns.
  absl::StatusOr<v1::Job> Cancel(int64_t job);
  // Queues a job that has ended again, to continue from the history. `trials` is its new limit; 0: the limit it had.
  absl::StatusOr<v1::Job> Resume(int64_t job, int64_t trials = 0);
  // Forgets a job that has ended; its records stay. OK if there is no such job. FailedPrecondition: it has not ended.
  absl::Status Delete(int64_t job);

  // History::TopK of the service's history, without the records' workloads. `counts`, unless null, gets how often the
  // filter's network runs each workload, by its key (CountsOf, service/records.h); nothing if the service is too old.
  absl::StatusOr<std::vector<TuningRecord>> Query(const RecordFilter& filter, int64_t top,
                                                  std::map<std::string, double>* counts = nullptr);
  // The records that a build of these workloads would use, by workload key: RecordsForBuild for the device that
  // ModelForBuild chooses (service/records.h).
  absl::StatusOr<std::map<std::string, TuningRecord>> ForBuild(const std::vector<std::string>& workload_keys,
                                                               const std::string& target,
                                                               const std::string& device_model, bool may_differ);

 private:
  class Impl;
  explicit ServiceClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

bool HasEnded(const v1::Job& job);
// "queued", "running", "done", "failed" or "cancelled".
std::string JobStateName(const v1::Job& job);

}  // namespace diapason
