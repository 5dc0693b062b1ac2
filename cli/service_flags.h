// Flags and habits of the commands that run for long and listen or connect (tracker, worker, serve), and of those that
// talk to them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/command.h"
#include "diapason/model.h"
#include "worker/rpc/log.h"
#include "worker/rpc/metrics.h"
#include "worker/rpc/security.h"
#include "worker/tracker/options.h"

namespace diapason {

// How peers know each other.
struct SecurityFlags {
  TlsFiles tls;
  std::string token_file;  // of who connects
  std::string tokens;      // of who listens
  bool insecure = false;
  bool allow_no_role = false;  // of certificates
};

struct ServiceFlags {
  std::string log_level = "info", metrics;
  SecurityFlags security;
};

// --tls-cert, --tls-key, --tls-ca, --insecure, and --token-file (a client), --tokens (a server) or both.
enum class ConnectionSide : uint8_t { kClient, kServer, kBoth };
void AddSecurityFlags(CLI::App* command, SecurityFlags* flags, ConnectionSide side = ConnectionSide::kClient);
// --log-level, --metrics and those of security.
void AddServiceFlags(CLI::App* command, ServiceFlags* flags, ConnectionSide side);

// Heading of the quotas in the help.
inline constexpr char kQuotaGroup[] = "Quotas per token (of --tokens)";
// What the queues of one token may take of a tracker together; 0: TrackerOptions' own.
struct QuotaFlags {
  int64_t queues = 0, pending = 0, stored_mib = 0;
  bool given() const { return queues > 0 || pending > 0 || stored_mib > 0; }
  void ApplyTo(TrackerOptions& options) const;
};
// --max-queues-per-token, --max-pending-per-token, --max-stored-mib-per-token.
void AddQuotaFlags(CLI::App* command, QuotaFlags* flags);

// --sandbox, of the commands that start builders and runners: "on", "off" or "auto".
void AddSandboxFlag(CLI::App* command, std::string* mode);
// --keep-env: names for PipelineOptions::keep_environment.
void AddKeepEnvironmentFlag(CLI::App* command, std::vector<std::string>* names);

// Events from now on go to stderr.
void StartLog(const ServiceFlags& flags);

// Where they lead, and what to show there.
api::Endpoint EndpointOf(const std::string& addresses, const SecurityFlags& flags);
// What to show at `addresses`, one or several with commas between them, which `flag` gives and which are checked. Plain
// text leaves this host only when that is said aloud: PermissionDenied names the flag and how to fix it. Other errors:
// of certificates and tokens (worker/rpc/security.h).
absl::StatusOr<std::shared_ptr<const ClientCredentials>> DialWith(const std::string& flag, const std::string& addresses,
                                                                  const SecurityFlags& flags);
// The same for who listens, at one address.
absl::StatusOr<ServerCredentials> ListenWith(const std::string& flag, const std::string& address,
                                             const SecurityFlags& flags);

// Serves metrics where --metrics says, else null. It ends before what `collect` asks.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const ServiceFlags& flags,
                                                            std::function<std::vector<Metric>()> collect);

// Waits for Ctrl-C or SIGTERM, or until `ended` says so (asked ten times a second).
void WaitForStop(const std::function<bool()>& ended = nullptr);

}  // namespace diapason
