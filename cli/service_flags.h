// Flags and helpers shared by the servers (tracker, worker, serve) and the commands that connect to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "diapason/model.h"
#include "diapason/servers.h"

namespace diapason {

// Authentication of both sides of a connection.
struct SecurityFlags {
  std::string tls_cert, tls_key, tls_ca;
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
// --max-queues-per-token, --max-pending-per-token, --max-stored-mib-per-token.
void AddQuotaFlags(CLI::App* command, api::TokenQuotas* quotas);

// --sandbox of the commands that start builders and runners: "on", "off" or "auto".
void AddSandboxFlag(CLI::App* command, std::string* mode);
// --keep-env: names of variables for builders and runners.
void AddKeepEnvironmentFlag(CLI::App* command, std::vector<std::string>* names);

// Logs events to stderr, at the level of the flags, until StopLog.
void StartLog(const ServiceFlags& flags);
void StopLog();

// The addresses with the credentials of the flags.
api::Endpoint EndpointOf(const std::string& addresses, const SecurityFlags& flags);
// Where a server listens, with the credentials of the flags.
api::ListenOptions ListenAt(const std::string& address, const SecurityFlags& flags);

}  // namespace diapason
