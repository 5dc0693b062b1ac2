// Tuning jobs of a service (`diapason serve`, docs/fleet.md). See model.h.
//
//   absl::StatusOr<std::unique_ptr<diapason::api::Service>> service = diapason::api::Service::Connect({"host:9190"});
//   diapason::api::TuneOptions options;
//   options.model.source = "model.onnx";
//   options.target = "cuda";
//   const absl::StatusOr<int64_t> job = (*service)->Submit(options);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/fleet.h"
#include "diapason/launch.h"
#include "diapason/model.h"
#include "diapason/tuner.h"

namespace diapason::api {

// How the tuned network compared with its reference implementation when its job ended.
struct JobCheck {
  bool ok = false;   // with the records that the history holds now
  std::string text;  // one sentence
  double elapsed_s = 0;
  std::optional<double> latency_us;   // of a run of the network, measured
  std::vector<std::string> problems;  // one sentence for each record that was found wrong in the network
};

struct Job {
  int64_t id = 0;
  std::string state;  // "queued", "running", "done", "failed", "cancelled"
  std::string text;   // of a failure: why
  std::string owner;  // name of the token that submitted or resumed it; empty: no token was needed
  // As it was submitted. The model is the file's name without its folder, or a built-in network.
  std::string model, target, device;
  std::map<std::string, std::vector<int64_t>> dims;  // sizes of symbolic dimensions
  std::map<std::string, std::string> labels;         // that workers must carry
  int priority = 0;
  double weight = 1;
  // 0: not given. With neither, the limit of Progress::trial_limit holds.
  int64_t trials = 0;
  double seconds = 0;
  int64_t submitted_at = 0, started_at = 0,
          ended_at = 0;               // Unix time in nanoseconds, by the service's clock; 0: not yet
  std::optional<Progress> progress;   // nothing: it has not begun. Of Jobs(): without tasks
  std::string stop_reason;            // why it ended
  std::vector<std::string> warnings;  // the last few
  std::optional<JobCheck> check;      // nothing: not asked for, or not yet made
  uint64_t version = 0;               // grows with every change

  bool ended() const { return state != "queued" && state != "running"; }
};

// The documents that `diapason jobs show --json` and `diapason jobs list --json` print (docs/schema/job.json,
// jobs.json).
std::string JobJson(const Job& job);
std::string JobsJson(const std::vector<Job>& jobs);

// A service that answers. Safe from any thread. A call to a service that does not answer is repeated until `patience`
// seconds have passed; then it returns Unavailable with the address. Of several addresses, each attempt goes to the
// next. Calls about one job return NotFound for an id that the service does not have, Delete excepted;
// PermissionDenied and Unauthenticated: what the token may not do.
class Service {
 public:
  // `patience` of 0: 10 s, or 60 s with several addresses, since another service may have to take over.
  // FailedPrecondition: it is no such service, or has no version of the protocol in common with this library;
  // PermissionDenied: without TLS or `insecure` beyond this host.
  static absl::StatusOr<std::unique_ptr<Service>> Connect(const Endpoint& service, double patience = 0);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Address of the tracker that the service uses.
  const std::string& tracker() const;
  // AskFleet of that tracker, with the credentials for the service.
  absl::StatusOr<FleetStatus> Fleet(double patience_seconds = 5);

  // Uploads the model if it is a file that the service does not have, queues the job and returns its id. What
  // `options` says of the history, of this host's processes and of callbacks has no meaning here. InvalidArgument
  // names the option that is wrong, or says that the file is larger than the service accepts; ResourceExhausted: too
  // many unfinished jobs.
  absl::StatusOr<int64_t> Submit(const TuneOptions& options);
  // All jobs, the newest first.
  absl::StatusOr<std::vector<Job>> Jobs();
  absl::StatusOr<Job> Get(int64_t job);
  // The job once its version is above `seen`, or as it is when `wait_seconds` have passed.
  absl::StatusOr<Job> Wait(int64_t job, uint64_t seen, double wait_seconds);
  // The job may still be running when this returns. What was measured is kept.
  absl::StatusOr<Job> Cancel(int64_t job);
  // Queues a job that has ended again, to continue from the history. `trials`: its new limit; 0: the one it had.
  absl::StatusOr<Job> Resume(int64_t job, int64_t trials = 0);
  // Starts workers that are for this job until the result is gone. Errors: those of CheckOptions(request) and of files
  // with credentials.
  absl::StatusOr<std::unique_ptr<LaunchedWorkers>> Launch(int64_t job, const LaunchRequest& request);
  // Forgets a job that has ended; its records stay. OK if there is no such job. FailedPrecondition: it has not ended.
  absl::Status Delete(int64_t job);

 private:
  class Impl;
  explicit Service(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason::api
