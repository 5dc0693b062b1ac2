// Authentication and limits of calls, shared by all services of a port. To be included only by .cc files that use gRPC.
//
// Whether a call is admitted is decided by its headers, before any byte of its message is read
// (worker/rpc/rpc_service.h).
#pragma once

#include <grpcpp/impl/codegen/server_context.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "worker/rpc/log_pacer.h"
#include "worker/rpc/metrics.h"
#include "worker/rpc/security.h"
#include "worker/rpc/tokens.h"

namespace diapason {

// Who makes a call.
struct Caller {
  std::string host;             // its address without the port; empty: this process (ServiceHost::in_process)
  std::string owner;            // name of its token; empty: no token is required
  Role needed = Role::kReader;  // the role that the call requires
  // Callers with the same key share one limit. Workers have a key of their own, since without tokens their hundreds of
  // waiting calls would count against the tuners of the same host.
  std::string key() const { return host + "\n" + owner + (needed == Role::kWorker ? "\nworker" : ""); }
};

struct GateOptions {
  // Concurrent calls of one token from one host. Workers have a separate limit: many of them often share one token and
  // one host, and each holds two calls.
  size_t max_calls_per_peer = 128;
  size_t max_worker_calls_per_peer = 32768;
  // Total bytes of the messages that are being read or parsed; each message counts as its method's limit.
  size_t max_bytes_in_flight = size_t{256} << 20;
  // Concurrent messages of more than kLargeMessage bytes, of one token from one host.
  size_t max_large_per_peer = 4;
};

// Only methods whose message limit is larger count towards max_bytes_in_flight.
inline constexpr size_t kLargeMessage = 2 << 20;

// Thread-safe.
class CallGate {
 public:
  explicit CallGate(const ServerCredentials& credentials, GateOptions options = {});
  ~CallGate();
  CallGate(const CallGate&) = delete;
  CallGate& operator=(const CallGate&) = delete;

  // Admits the call and sets `caller`, or fails. Unauthenticated or PermissionDenied: the certificate or the token is
  // not accepted; logged and counted. ResourceExhausted: this peer has too many calls. After OK, call Leave once.
  absl::Status Enter(const grpc::ServerContextBase& context, const std::string& method, Role needed, Caller& caller);
  void Leave(const Caller& caller);

  // Calls `read` as soon as a message of up to `bytes` may be read: at once on this thread, or later on a thread that
  // gives room back. After `read`, call GiveBackRoom once with the same `caller` and `bytes`.
  void TakeRoom(const Caller& caller, size_t bytes, std::function<void()> read);
  void GiveBackRoom(const Caller& caller, size_t bytes);

  std::vector<Metric> Metrics();

 private:
  struct Waiting {
    std::string key;
    size_t bytes;
    std::function<void()> read;
  };

  absl::Status Check(const grpc::ServerContextBase& context, Role needed, Caller& caller, std::string& reason);
  absl::Status CheckCertificate(const grpc::ServerContextBase& context, Role needed, std::string& reason) const;
  void CountRefusal(const grpc::ServerContextBase& context, const std::string& method, const std::string& reason,
                    const absl::Status& why);
  bool HasRoom(const std::string& key, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<Authority> authority_;
  const bool tls_, allow_no_role_;
  const GateOptions options_;

  Mutex mutex_;
  std::map<std::string, size_t> calls_ ABSL_GUARDED_BY(mutex_), large_ ABSL_GUARDED_BY(mutex_);  // by Caller::key
  size_t open_calls_ ABSL_GUARDED_BY(mutex_) = 0, bytes_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> refused_ ABSL_GUARDED_BY(mutex_);  // by reason
  LogPacer pacer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace diapason
