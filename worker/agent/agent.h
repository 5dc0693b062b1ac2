// A worker: a Pipeline that takes its work from a tracker (proto/diapason/v1/tracker.proto). Only connects; accepts no
// connections.
//
// Two threads: one leases, one reports and renews. A tracker that is away is asked again with backoff, for ever; what
// runs meanwhile continues, and its outcomes are reported when the session still lives.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/pipeline/pipeline.h"
#include "worker/rpc/metrics.h"
#include "worker/rpc/security.h"

namespace diapason {

struct AgentOptions {
  std::string tracker;  // HOST:PORT; several with commas between them
  std::shared_ptr<const ClientCredentials> credentials;
  std::string worker_id;  // unique in the fleet; empty: host and process
  std::string name;       // for people; empty: worker_id
  std::map<std::string, std::string> labels;
  PipelineOptions pipeline;
  // Requests held at once for all devices together, so that neither builders nor devices wait; 0: 2 a builder and 2 a
  // device.
  int max_leases = 0;
};

class WorkerAgent {
 public:
  // Starts the processes and the threads; the errors are Pipeline::Start's. Does not wait for the tracker.
  static absl::StatusOr<std::unique_ptr<WorkerAgent>> Start(AgentOptions options);
  // Stops.
  ~WorkerAgent();
  WorkerAgent(const WorkerAgent&) = delete;
  WorkerAgent& operator=(const WorkerAgent&) = delete;

  // Waits until the tracker has accepted the worker. DeadlineExceeded with the last reason; at once,
  // FailedPrecondition, InvalidArgument or AlreadyExists when it refuses.
  absl::Status WaitUntilRegistered(double timeout_seconds);
  // Takes no more leases and waits until those held are reported, at most so long.
  absl::Status Drain(double timeout_seconds);
  // Gives leases back, leaves the tracker, kills all processes. Idempotent.
  void Stop();

  // Why the tracker will never take this worker in (versions that do not fit, wrong credentials); OK while it may.
  absl::Status Refusal();

  Pipeline& pipeline();
  // For MetricsServer; safe from any thread.
  std::vector<Metric> Metrics();
  // "cuda:0 (NVIDIA H200)", in the order of the options.
  std::vector<std::string> pipeline_devices();

 private:
  class Impl;
  explicit WorkerAgent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
