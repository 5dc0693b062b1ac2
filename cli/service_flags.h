// Flags and helpers shared by the servers (tracker, worker, serve) and the commands that connect to them.
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

// Authentication of both sides of a connection.
struct SecurityFlags {
  TlsFiles tls;
  std::string token_file;  // of a client: file with its token
  std::string tokens;      // of a server: file with the tokens that it accepts
  bool insecure = false;
  bool allow_no_role = false;  // accept certificates without a role
};

struct ServiceFlags {
  std::string log_level = "info", metrics;
  SecurityFlags security;
};

// --tls-cert, --tls-key, --tls-ca, --insecure, and --token-file (a client), --tokens (a server) or both.
enum class ConnectionSide : uint8_t { kClient, kServer, kBoth };
void AddSecurityFlags(CLI::App* command, SecurityFlags* flags, ConnectionSide side = ConnectionSide::kClient);
// --log-level, --metrics and the security flags.
void AddServiceFlags(CLI::App* command, ServiceFlags* flags, ConnectionSide side);

// Heading of the quotas in the help.
inline constexpr char kQuotaGroup[] = "Quotas per token (of --tokens)";
// Limits on all queues of one token together; 0: the default of TrackerOptions.
struct QuotaFlags {
  int64_t queues = 0, pending = 0, stored_mib = 0;
  bool given() const { return queues > 0 || pending > 0 || stored_mib > 0; }
  void ApplyTo(TrackerOptions& options) const;
};
// --max-queues-per-token, --max-pending-per-token, --max-stored-mib-per-token.
void AddQuotaFlags(CLI::App* command, QuotaFlags* flags);

// --sandbox of the commands that start builders and runners: "on", "off" or "auto".
void AddSandboxFlag(CLI::App* command, std::string* mode);
// --keep-env: names of variables for PipelineOptions::keep_environment.
void AddKeepEnvironmentFlag(CLI::App* command, std::vector<std::string>* names);

// Starts logging events to stderr, at the level of the flags.
void StartLog(const ServiceFlags& flags);

// The addresses with the credentials of the flags.
api::Endpoint EndpointOf(const std::string& addresses, const SecurityFlags& flags);
// Credentials for connecting to `addresses` (one, or several separated by commas), the value of `flag`, which is
// validated. PermissionDenied: the connection would be unencrypted and leave this host without --insecure; the message
// names `flag`. Other errors are those of certificates and tokens (worker/rpc/security.h).
absl::StatusOr<std::shared_ptr<const ClientCredentials>> DialWith(const std::string& flag, const std::string& addresses,
                                                                  const SecurityFlags& flags);
// The same for a server that listens on one address.
absl::StatusOr<ServerCredentials> ListenWith(const std::string& flag, const std::string& address,
                                             const SecurityFlags& flags);

// Starts the server of --metrics; null without the flag. REQUIRES: everything that `collect` uses outlives the server.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const ServiceFlags& flags,
                                                            std::function<std::vector<Metric>()> collect);

// Waits for Ctrl-C or SIGTERM, or until `ended` returns true (it is called ten times a second).
void WaitForStop(const std::function<bool()>& ended = nullptr);

}  // namespace diapason
