// Who may call, and how much at once: what stands in front of all services of a port, for .cc files that speak gRPC.
//
// Everything here is decided by a call's headers, before a byte of its message is read (worker/rpc_service.h).
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
#include "worker/log_pacer.h"
#include "worker/metrics.h"
#include "worker/security.h"
#include "worker/tokens.h"

namespace diapason {

// Who makes a call.
struct Caller {
  std::string host;             // its address without the port; empty: this process (ServiceHost::in_process)
  std::string owner;            // name of its token; empty: none is asked for
  Role needed = Role::kReader;  // by the call
  // Callers of one key count together. Workers without tokens wait in hundreds of calls, beside tuners of their host.
  std::string key() const { return host + "\n" + owner + (needed == Role::kWorker ? "\nworker" : ""); }
};

struct GateOptions {
  // Calls at once of one token from one host, those of workers apart: these often share one token and one host, and
  // hold two each.
  size_t max_calls_per_peer = 128;
  size_t max_worker_calls_per_peer = 32768;
  // Bytes that the messages which are being read, and parsed, may have together, each counted with its method's limit.
  size_t max_bytes_in_flight = size_t{256} << 20;
  // Messages of more than kLargeMessage at once of one token from one host.
  size_t max_large_per_peer = 4;
};

// Methods whose messages may be larger are counted (max_bytes_in_flight).
inline constexpr size_t kLargeMessage = 2 << 20;

// Safe from any thread.
class CallGate {
 public:
  explicit CallGate(const ServerCredentials& credentials, GateOptions options = {});
  ~CallGate();
  CallGate(const CallGate&) = delete;
  CallGate& operator=(const CallGate&) = delete;

  // Whether the call may be made. Unauthenticated, PermissionDenied: of the certificate or the token; logged
  // and counted. ResourceExhausted: this peer has too many calls. After OK, Leave is to be called once.
  absl::Status Enter(const grpc::ServerContextBase& context, const std::string& method, Role needed, Caller& caller);
  void Leave(const Caller& caller);

  // Calls `read` when a message of up to `bytes` may be read: at once and in this thread, or later from one that
  // leaves. Afterwards GiveBack is to be called once, with the same.
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
