// The coordinator service (`diapason serve`): jobs (tuning.proto) and the history (history.proto) on one port, and a
// tracker on the same port unless there is one elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/job_manager.h"
#include "worker/rpc/metrics.h"
#include "worker/rpc/security.h"
#include "worker/tracker/options.h"

namespace diapason {

struct CoordinatorOptions {
  std::string listen;  // HOST:PORT; port 0: any free one
  ServerCredentials credentials;
  std::string tracker;  // HOST:PORT; several with commas between them; empty: one of its own
  std::string state;    // of its own tracker; empty: the history's ".tracker" (StatePath)
  TrackerOptions own_tracker;
  uint64_t max_model_bytes = uint64_t{4} << 30;
  JobManagerOptions jobs;
};

class CoordinatorServer {
 public:
  // Errors: those of JobManager::Open, TrackerServer::Start and the port.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(CoordinatorOptions options);
  // Stops: what runs is resumed at the next start.
  ~CoordinatorServer();
  CoordinatorServer(const CoordinatorServer&) = delete;
  CoordinatorServer& operator=(const CoordinatorServer&) = delete;

  // With the port that was chosen.
  const std::string& address() const;
  // Of the service, and of its own tracker where it has one. Safe from any thread.
  std::vector<Metric> Metrics();
  // To look at.
  JobManager& jobs();
  // Where this process reaches the tracker.
  const std::string& tracker() const;

 private:
  class Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
