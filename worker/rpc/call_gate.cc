#include "worker/rpc/call_gate.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>
#include <openssl/crypto.h>

#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

// "ipv4:10.0.0.1:4711" -> "10.0.0.1".
std::string HostOf(const std::string& peer) {
  const size_t scheme = peer.find(':');
  if (scheme == std::string::npos) return peer;
  return peer.substr(scheme + 1, peer.rfind(':') - scheme - 1);
}

std::string TokenOf(const grpc::ServerContextBase& context) {
  const auto header = context.client_metadata().find("authorization");
  constexpr char kBearer[] = "Bearer ";
  if (header == context.client_metadata().end() || !header->second.starts_with(kBearer)) return "";
  return std::string(header->second.data() + sizeof kBearer - 1, header->second.size() - (sizeof kBearer - 1));
}

// What the certificate allows; the token then says more.
bool MayAsk(PeerRole role, Role needed) {
  if (role == PeerRole::kWorker) return needed == Role::kWorker;
  if (role == PeerRole::kTracker) return false;
  return needed != Role::kWorker;
}

// How a refusal is counted.
std::string ReasonOf(const absl::Status& status, const std::string& token) {
  if (absl::IsPermissionDenied(status)) return "token_of_another_role";
  return token.empty() ? "no_token" : "unknown_token";
}

}  // namespace

CallGate::CallGate(const ServerCredentials& credentials, GateOptions options)
    : authority_(credentials.authority),
      tls_(credentials.tls.has_value()),
      allow_no_role_(tls_ && credentials.tls->allow_no_role),
      options_(options) {}
CallGate::~CallGate() = default;

absl::Status CallGate::Check(const grpc::ServerContextBase& context, Role needed, Caller& caller, std::string& reason) {
  const std::string token = TokenOf(context);
  if (token.size() == OwnToken().size() && CRYPTO_memcmp(token.data(), OwnToken().data(), token.size()) == 0) {
    caller.host.clear();  // ServiceHost::in_process
    return absl::OkStatus();
  }
  if (tls_) RETURN_IF_ERROR(CheckCertificate(context, needed, reason));
  if (authority_ == nullptr) return absl::OkStatus();
  const absl::Status status = authority_->Check(token, needed, &caller.owner);
  if (!status.ok()) reason = ReasonOf(status, token);
  return status;
}

absl::Status CallGate::CheckCertificate(const grpc::ServerContextBase& context, Role needed,
                                        std::string& reason) const {
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : context.auth_context()->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME))
    uris.emplace_back(uri.data(), uri.size());
  const std::optional<PeerRole> role = RoleOfUris(uris);
  if (!role.has_value() && allow_no_role_) return absl::OkStatus();
  if (role.has_value() && MayAsk(*role, needed)) return absl::OkStatus();
  reason = role.has_value() ? "certificate_of_another_role" : "certificate_without_role";
  if (!role.has_value()) {
    return absl::PermissionDeniedError(
        "the certificate given with --tls-cert has no role: make a new one with deploy/make-certs.sh");
  }
  return absl::PermissionDeniedError(std::string("the certificate given with --tls-cert has the role ") +
                                     PeerRoleName(*role) + ", and this call is for the role " +
                                     (needed == Role::kWorker ? "worker" : "client or service") +
                                     ": make one of that role with deploy/make-certs.sh");
}

absl::Status CallGate::Enter(const grpc::ServerContextBase& context, const std::string& method, Role needed,
                             Caller& caller) {
  caller.host = HostOf(context.peer());
  caller.needed = needed;
  std::string reason;
  if (absl::Status status = Check(context, needed, caller, reason); !status.ok()) {
    CountRefusal(context, method, reason, status);
    return status;
  }
  absl::Status status;
  {
    MutexLock lock(mutex_);
    const size_t limit = needed == Role::kWorker ? options_.max_worker_calls_per_peer : options_.max_calls_per_peer;
    size_t& calls = calls_[caller.key()];
    if (caller.host.empty() || calls < limit) {
      ++calls;
      ++open_calls_;
      return absl::OkStatus();
    }
    status = absl::ResourceExhaustedError("this peer has " + std::to_string(calls) +
                                          " calls in progress here, which is the limit: wait for some of them");
  }
  CountRefusal(context, method, "too_many_calls", status);
  return status;
}

void CallGate::Leave(const Caller& caller) {
  MutexLock lock(mutex_);
  auto calls = calls_.find(caller.key());
  if (--calls->second == 0) calls_.erase(calls);
  --open_calls_;
}

void CallGate::CountRefusal(const grpc::ServerContextBase& context, const std::string& method,
                            const std::string& reason, const absl::Status& why) {
  MutexLock lock(mutex_);
  ++refused_[reason];
  if (uint64_t more = 0; pacer_.Allows(more)) {
    LogEvent(LogLevel::kWarning, "call_refused",
             {{"peer", context.peer()},
              {"method", method},
              {"reason", reason},
              {"why", std::string(why.message())},
              {"more", std::to_string(more)}});
  }
}

bool CallGate::HasRoom(const std::string& key, size_t bytes) {
  // A single one always fits.
  if (bytes_in_flight_ > 0 && bytes_in_flight_ + bytes > options_.max_bytes_in_flight) return false;
  const auto large = large_.find(key);
  return large == large_.end() || large->second < options_.max_large_per_peer;
}

void CallGate::TakeRoom(const Caller& caller, size_t bytes, std::function<void()> read) {
  if (bytes > kLargeMessage) {
    MutexLock lock(mutex_);
    if (!HasRoom(caller.key(), bytes)) {
      waiting_.push_back({caller.key(), bytes, std::move(read)});
      return;
    }
    bytes_in_flight_ += bytes;
    ++large_[caller.key()];
  }
  read();
}

void CallGate::GiveBackRoom(const Caller& caller, size_t bytes) {
  if (bytes <= kLargeMessage) return;
  std::vector<std::function<void()>> next;
  {
    MutexLock lock(mutex_);
    bytes_in_flight_ -= bytes;
    if (auto large = large_.find(caller.key()); --large->second == 0) large_.erase(large);
    // In their order; one whose peer has its share lets others pass.
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (!HasRoom(it->key, it->bytes)) {
        ++it;
        continue;
      }
      bytes_in_flight_ += it->bytes;
      ++large_[it->key];
      next.push_back(std::move(it->read));
      it = waiting_.erase(it);
    }
  }
  for (const auto& read : next) read();
}

std::vector<Metric> CallGate::Metrics() {
  MutexLock lock(mutex_);
  Metric refused{
      "diapason_calls_refused_total", "Calls that were refused by their headers", Metric::Type::kCounter, {}};
  for (const auto& [reason, count] : refused_)
    refused.values.push_back({{{"reason", reason}}, static_cast<double>(count), {}});
  return {Metric::Gauge("diapason_calls", "Calls in progress", static_cast<double>(open_calls_)),
          Metric::Gauge("diapason_calls_message_bytes", "Room taken by messages that are being read",
                        static_cast<double>(bytes_in_flight_)),
          std::move(refused)};
}

}  // namespace diapason
