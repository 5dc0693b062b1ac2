// Talking to a coordinator service: jobs and records.
//
// A service that does not answer is asked again with backoff until `give_up_seconds` have passed; then the error names
// the address. Where several addresses are given, with commas between them, each attempt asks the next one. Submitting
// is safe to repeat.
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
#include "worker/security.h"

namespace diapason {

namespace v1 {
class Job;
}

struct ServiceClientOptions {
  double give_up_seconds = 0;  // 0: 10; with several addresses 60, in which another service takes over
  std::shared_ptr<const ClientCredentials> credentials;
};

class ServiceClient {
 public:
  // Compares versions. Unavailable, naming the address, when there is no answer; FailedPrecondition when versions do
  // not fit.
  static absl::StatusOr<std::unique_ptr<ServiceClient>> Connect(const std::string& address,
                                                                ServiceClientOptions options = {});
  ~ServiceClient();
  ServiceClient(const ServiceClient&) = delete;
  ServiceClient& operator=(const ServiceClient&) = delete;

  // Address of the tracker that the service uses.
  const std::string& tracker() const;

  // Brings the model over when it is a file that the service does not have, and submits. Returns the job's id.
  absl::StatusOr<int64_t> Submit(TuneSpec spec);
  absl::StatusOr<std::vector<v1::Job>> List();
  // Waits up to `wait_seconds` for a version above `seen`.
  absl::StatusOr<v1::Job> Get(int64_t job, uint64_t seen = 0, double wait_seconds = 0);
  absl::StatusOr<v1::Job> Cancel(int64_t job);
  absl::StatusOr<v1::Job> Resume(int64_t job, int64_t trials = 0);
  // Forgets a job that has ended. FailedPrecondition when it has not.
  absl::Status Delete(int64_t job);

  // History::TopK of the service's history, without workloads. `counts`, unless null, becomes CountsOf
  // (service/records.h) of the filter's network; empty where the service is too old to say.
  absl::StatusOr<std::vector<TuningRecord>> Query(const RecordFilter& filter, int64_t top,
                                                  std::map<std::string, double>* counts = nullptr);
  // As RecordsForBuild of ModelForBuild (service/records.h).
  absl::StatusOr<std::map<std::string, TuningRecord>> ForBuild(const std::vector<std::string>& workload_keys,
                                                               const std::string& target,
                                                               const std::string& device_model, bool may_differ);

 private:
  class Impl;
  explicit ServiceClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Whether a job has ended, and its state as a word: "queued", "running", "done", "failed", "cancelled".
bool HasEnded(const v1::Job& job);
std::string JobStateName(const v1::Job& job);

}  // namespace diapason
