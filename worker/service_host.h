// A gRPC server on one port: what all our services have in common.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace grpc {
class Service;
}

namespace diapason {

class ServiceHost {
 public:
  // Serves `services`, which outlive the host, on `address` ("127.0.0.1:0": any free port of loopback). Unavailable,
  // naming the address, when that fails.
  static absl::StatusOr<std::unique_ptr<ServiceHost>> Start(const std::string& address,
                                                            const std::vector<grpc::Service*>& services);
  // Shuts down.
  ~ServiceHost();
  ServiceHost(const ServiceHost&) = delete;
  ServiceHost& operator=(const ServiceHost&) = delete;

  // With the port that was chosen.
  const std::string& address() const;
  // Takes no more calls and waits a moment for those in progress. Idempotent.
  void Shutdown();

 private:
  class Impl;
  explicit ServiceHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
