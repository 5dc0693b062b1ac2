// A Tracker behind gRPC: the services Measure and Tracker on one port.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/rpc/metrics.h"
#include "worker/rpc/service_host.h"
#include "worker/tracker/options.h"

namespace grpc {
class Service;
}

namespace diapason {

class TrackerServer {
 public:
  // Listens as `host` says, with the errors of ServiceHost::Start. `state`: file that keeps the tracker's state over a
  // restart (worker/tracker/store.h, whose errors are returned); empty: none. `services`: further ones to serve on the
  // same port; they outlive the server.
  static absl::StatusOr<std::unique_ptr<TrackerServer>> Start(const ServiceHostOptions& host,
                                                              TrackerOptions options = {},
                                                              const std::string& state = "",
                                                              std::vector<grpc::Service*> services = {});
  // Shuts down.
  ~TrackerServer();
  TrackerServer(const TrackerServer&) = delete;
  TrackerServer& operator=(const TrackerServer&) = delete;

  // With the port that was chosen.
  const std::string& address() const;
  // ServiceHost::in_process.
  const std::string& in_process() const;
  // Of the tracker and of its port, for MetricsServer; safe from any thread.
  std::vector<Metric> Metrics();
  // Answers waiting calls with UNAVAILABLE and stops listening. Idempotent.
  void Shutdown();

 private:
  class Impl;
  explicit TrackerServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
