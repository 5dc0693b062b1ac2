// A gRPC server on one port, or for this process alone: what all our services have in common. It also answers gRPC
// health checks and reflection, which anybody may ask who may connect.
//
// Peers are limited: in number (worker/rpc/listener.h), in the time that a handshake takes (10 s), in idle time (10
// minutes without a call), in calls and in the memory that their messages take (worker/rpc/call_gate.h). A peer whose
// host is gone is found within 30 s.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/rpc/listener.h"
#include "worker/rpc/metrics.h"
#include "worker/rpc/security.h"

namespace grpc {
class Service;
}

namespace diapason {

class CallGate;

// What checks the calls of services that ask for these credentials.
std::shared_ptr<CallGate> MakeGate(const ServerCredentials& credentials);

struct ServiceHostOptions {
  std::string address;  // "127.0.0.1:0": any free port of loopback; empty: no port, for calls of this process alone
  ServerCredentials credentials;
  std::shared_ptr<CallGate> gate = nullptr;  // of the services, for its metrics; null: none
  size_t max_connections = 0;                // as ListenerOptions
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
  // Of the port: connections, calls and certificates; of the program: its version. Safe from any thread.
  std::vector<Metric> Metrics();
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
