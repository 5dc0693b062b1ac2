// A gRPC server on one port, or for this process only; the base of all our services. It also answers gRPC health checks
// and reflection, without a token.
//
// Limits for clients: the number of connections (worker/rpc/listener.h), the duration of a handshake (10 s), idle time
// (10 minutes without a call), concurrent calls and the memory of their messages (worker/rpc/call_gate.h). The
// connection of a host that no longer answers is closed within 30 s.
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

// The gate that checks calls of services with these credentials.
std::shared_ptr<CallGate> MakeGate(const ServerCredentials& credentials);

struct ServiceHostOptions {
  std::string address;  // "127.0.0.1:0": any free port of loopback; empty: no port, only for calls of this process
  ServerCredentials credentials;
  std::shared_ptr<CallGate> gate = nullptr;  // of the services, for its metrics; null: none
  size_t max_connections = 0;                // as ListenerOptions
};

class ServiceHost {
 public:
  // REQUIRES: `services` outlive the host. Unavailable: cannot listen on the address; the message names it.
  static absl::StatusOr<std::unique_ptr<ServiceHost>> Start(const ServiceHostOptions& options,
                                                            const std::vector<grpc::Service*>& services);
  // Shuts down.
  ~ServiceHost();
  ServiceHost(const ServiceHost&) = delete;
  ServiceHost& operator=(const ServiceHost&) = delete;

  // With the actual port; empty without a port.
  const std::string& address() const;
  // Metrics of connections, calls and certificates, and the version of the program. Safe from any thread.
  std::vector<Metric> Metrics();
  // Address for MakeChannel in this process, without a socket, credentials or a token. No other process can use it.
  const std::string& in_process() const;
  // Stops accepting calls and waits briefly for those in progress. Idempotent.
  void Shutdown();

 private:
  class Impl;
  explicit ServiceHost(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason
