// A gRPC server on one port, or for this process alone: what all our services have in common. It also answers gRPC health checks and reflection,
// which anybody may ask who may connect.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/security.h"

namespace grpc {
class Service;
}

namespace diapason {

struct ServiceHostOptions {
  std::string address;  // "127.0.0.1:0": any free port of loopback; empty: no port, for calls of this process alone
  ServerCredentials credentials;
};

class ServiceHost {
 public:
  // Serves `services`, which outlive the host. Unavailable, naming the address, when that fails.
  static absl::StatusOr<std::unique_ptr<ServiceHost>> Start(const ServiceHostOptions& options,
                                                            const std::vector<grpc::Service*>& services);
  // Shuts down.
  ~ServiceHost();
  ServiceHost(const ServiceHost&) = delete;
  ServiceHost& operator=(const ServiceHost&) = delete;

  // With the port that was chosen; empty without one.
  const std::string& address() const;
  // Where this process reaches it (MakeChannel), and nobody else: without a socket, credentials or a token.
  const std::string& in_process() const;
  // Takes no more calls and waits a moment for those in progress. Idempotent.
  void Shutdown();

 private:
  class Impl;
  explicit ServiceHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
