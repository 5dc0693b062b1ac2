#include "cli/service_flags.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "api/version.h"
#include "base/check.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "worker/rpc/tls_watch.h"
#include "worker/rpc/tokens.h"

namespace diapason {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

std::optional<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort parts{address.substr(0, colon), 0};
  const std::string port = address.substr(colon + 1);
  const bool digits = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &parts.port) || parts.port > 65535) return std::nullopt;
  const bool bracketed = parts.host.front() == '[' && parts.host.back() == ']';
  if (parts.host.find(':') != std::string::npos && !bracketed) return std::nullopt;
  if (parts.host.find_first_of(" /,") != std::string::npos) return std::nullopt;
  return parts;
}

absl::Status CheckPlainText(const std::string& flag, const std::string& address, const SecurityFlags& flags) {
  if (flags.insecure || flags.tls.given() || IsLoopback(address)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(flag, " ", address,
                   " would speak plain text beyond this host; give --tls-cert, --tls-key and --tls-ca, or add "
                   "--insecure if every host that can reach it is trusted"));
}

}  // namespace

// By the address itself: a name may lead anywhere, whatever it begins with. "localhost" is loopback by RFC 6761.
bool IsLoopback(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return false;
  host = host.substr(1, host.size() - 2);
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

void AddServiceFlags(CLI::App* command, ServiceFlags* flags, ConnectionSide side) {
  command
      ->add_option("--log-level", flags->log_level, "Events logged on stderr: error, warning, info (default) or debug")
      ->check(CLI::Validator(
          [](std::string& text) {
            LogLevel level = LogLevel::kNone;
            return ParseLogLevel(text, level) ? std::string() : text + ": give error, warning, info or debug";
          },
          ""))
      ->type_name("LEVEL");
  command
      ->add_option("--metrics", flags->metrics,
                   "Serve metrics for Prometheus at http://HOST:PORT/metrics, in plain text and to everybody")
      ->type_name("HOST:PORT");
  AddSecurityFlags(command, &flags->security, side);
}

absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const ServiceFlags& flags,
                                                            std::function<std::vector<Metric>()> collect) {
  if (flags.metrics.empty()) return nullptr;
  RETURN_IF_ERROR(CheckAddress("--metrics", flags.metrics));
  if (!IsLoopback(flags.metrics) && !flags.security.insecure) {
    return absl::PermissionDeniedError(
        absl::StrCat("--metrics ", flags.metrics,
                     " would speak plain text beyond this host; add --insecure if every host that can reach it is "
                     "trusted, or let something on this host fetch them"));
  }
  auto with_program = [collect = std::move(collect), tls = flags.security.tls] {
    std::vector<Metric> metrics = collect();
    metrics.push_back(
        {"diapason_build_info", "The program; always 1", Metric::Type::kGauge, {{{{"version", kVersion}}, 1, {}}}});
    if (tls.given()) {
      metrics.push_back(Metric::Gauge("diapason_certificate_expiry_timestamp_seconds",
                                      "When the certificate in use expires, in Unix time", ExpiryInUse(tls)));
    }
    return metrics;
  };
  ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server, MetricsServer::Start(flags.metrics, std::move(with_program)));
  LogEvent(LogLevel::kInfo, "metrics_served", {{"address", server->address()}});
  return server;
}

void QuotaFlags::ApplyTo(TrackerOptions& options) const {
  if (queues > 0) options.max_queues_per_token = static_cast<uint32_t>(queues);
  if (pending > 0) options.max_pending_per_token = static_cast<uint32_t>(pending);
  if (stored_mib > 0) options.max_stored_bytes_per_token = static_cast<size_t>(stored_mib) << 20;
}

void AddQuotaFlags(CLI::App* command, QuotaFlags* flags) {
  const TrackerOptions all;
  AddWhole(command, "--max-queues-per-token", &flags->queues, {1, all.max_queues},
           absl::StrCat("Tuners and jobs that measure at once (default ", all.max_queues_per_token, ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-pending-per-token", &flags->pending, {1, 1 << 30},
           absl::StrCat("Measurements that wait, run or were not fetched (default ", all.max_pending_per_token, ")"))
      ->group(kQuotaGroup);
  AddWhole(
      command, "--max-stored-mib-per-token", &flags->stored_mib, {1, static_cast<int64_t>(all.max_stored_bytes >> 20)},
      absl::StrCat("MiB of these measurements and their results (default ", all.max_stored_bytes_per_token >> 20, ")"))
      ->group(kQuotaGroup);
}

void AddSecurityFlags(CLI::App* command, SecurityFlags* flags, ConnectionSide side) {
  const char* group = "Security";
  auto file = [&](const std::string& name, std::string* value, const std::string& help) {
    command->add_option(name, *value, help)->type_name("FILE")->group(group);
  };
  file("--tls-cert", &flags->tls.cert,
       "Certificate to present (PEM); with --tls-key and --tls-ca, mutual TLS is required; files are reloaded when "
       "they change");
  file("--tls-key", &flags->tls.key, "Its private key");
  file("--tls-ca", &flags->tls.ca, "Certificate of the authority that signs the certificates to accept");
  if (side != ConnectionSide::kServer) file("--token-file", &flags->token_file, "File with the token to show");
  if (side != ConnectionSide::kClient)
    file("--tokens", &flags->tokens,
         "File with the tokens to accept: lines ROLE TOKEN NAME; read again when it changes");
  command
      ->add_flag("--tls-allow-no-role", flags->allow_no_role,
                 "Accept certificates without a role (urn:diapason:role:...), until all of the fleet are replaced")
      ->group(group);
  command
      ->add_flag("--insecure", flags->insecure,
                 "Speak plain text beyond this host, where everybody may read and answer")
      ->group(group);
}

void AddSandboxFlag(CLI::App* command, std::optional<SandboxMode>* mode) {
  command
      ->add_option_function<std::string>(
          "--sandbox", [mode](const std::string& text) { *mode = ParseSandboxMode(text); },
          "Builders and runners without network, and with files that they can only read, by bubblewrap: on, off, or "
          "auto "
          "(default: where this host allows it)")
      ->check(CLI::Validator(
          [](std::string& text) {
            return ParseSandboxMode(text).has_value() ? std::string() : text + ": give auto, on or off";
          },
          ""))
      ->type_name("MODE")
      ->group("Security");
}

void AddKeepEnvironmentFlag(CLI::App* command, std::vector<std::string>* names) {
  command
      ->add_option(
          "--keep-env", *names,
          "Environment variable that builders and runners get besides those that compilers and drivers need; may be "
          "given several times")
      ->allow_extra_args(false)
      ->type_name("NAME")
      ->group("Security");
}

void StartLog(const ServiceFlags& flags) {
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(flags.log_level, level);
  SetLogLevel(level);
}

absl::Status CheckAddress(const std::string& flag, const std::string& address) {
  if (Split(address).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", address.empty() ? "\"\"" : address,
                   " is not understood; write it as HOST:PORT, for example 127.0.0.1:9190"));
}

absl::StatusOr<std::shared_ptr<const ClientCredentials>> DialWith(const std::string& flag, const std::string& addresses,
                                                                  const SecurityFlags& flags) {
  for (const std::string& address : std::vector<std::string>(absl::StrSplit(addresses, ','))) {
    RETURN_IF_ERROR(CheckAddress(flag, address));
    RETURN_IF_ERROR(CheckPlainText(flag, address, flags));
  }
  auto credentials = std::make_shared<ClientCredentials>();
  if (flags.tls.given()) {
    ASSIGN_OR_RETURN(credentials->tls, LoadTls(flags.tls, {.allow_no_role = flags.allow_no_role}));
  }
  if (!flags.token_file.empty()) {
    ASSIGN_OR_RETURN(credentials->token, LoadToken(flags.token_file));
  }
  return credentials;
}

absl::StatusOr<ServerCredentials> ListenWith(const std::string& flag, const std::string& address,
                                             const SecurityFlags& flags) {
  RETURN_IF_ERROR(CheckAddress(flag, address));
  RETURN_IF_ERROR(CheckPlainText(flag, address, flags));
  ServerCredentials credentials;
  if (flags.tls.given()) {
    ASSIGN_OR_RETURN(credentials.tls, LoadTls(flags.tls, {.listens = true, .allow_no_role = flags.allow_no_role}));
  }
  if (!flags.tokens.empty()) {
    ASSIGN_OR_RETURN(credentials.authority, Authority::Load(flags.tokens));
  }
  return credentials;
}

void WaitForStop(const std::function<bool()>& ended) {
  std::atomic<bool> stop{false};
  InterruptGuard interrupt(&stop);
  while (!stop && (ended == nullptr || !ended())) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace diapason
