#include "cli/service_flags.h"

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/endpoint.h"
#include "api/version.h"
#include "base/check.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "worker/process/sandbox.h"
#include "worker/rpc/address.h"
#include "worker/rpc/tls_watch.h"
#include "worker/rpc/tokens.h"

namespace diapason {
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
                   "Serve metrics for Prometheus at http://HOST:PORT/metrics, unencrypted and without authorization")
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
           absl::StrCat("Tuners and jobs that measure at the same time (default ", all.max_queues_per_token, ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-pending-per-token", &flags->pending, {1, 1 << 30},
           absl::StrCat("Measurements that are queued, running or not yet fetched (default ", all.max_pending_per_token,
                        ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-stored-mib-per-token", &flags->stored_mib,
           {1, static_cast<int64_t>(all.max_stored_bytes >> 20)},
           absl::StrCat("Total size in MiB of these measurements and their results (default ",
                        all.max_stored_bytes_per_token >> 20, ")"))
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
  file("--tls-key", &flags->tls.key, "Private key of the certificate");
  file("--tls-ca", &flags->tls.ca, "Certificate of the authority whose certificates are accepted");
  if (side != ConnectionSide::kServer) file("--token-file", &flags->token_file, "File with the token to present");
  if (side != ConnectionSide::kClient)
    file("--tokens", &flags->tokens,
         "File with the tokens to accept, one line ROLE TOKEN NAME for each; reloaded when it changes");
  command
      ->add_flag(
          "--tls-allow-no-role", flags->allow_no_role,
          "Accept certificates without a role (urn:diapason:role:...), while those of a fleet are being replaced")
      ->group(group);
  command
      ->add_flag("--insecure", flags->insecure,
                 "Allow unencrypted connections with other hosts, which anybody on the network can read and answer")
      ->group(group);
}

void AddSandboxFlag(CLI::App* command, std::string* mode) {
  command
      ->add_option("--sandbox", *mode,
                   "Isolate builders and runners with bubblewrap (no network, read-only files): on, off, or auto (the "
                   "default: on where this host allows it)")
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
      ->add_option("--keep-env", *names,
                   "Environment variable to pass to builders and runners, besides those that compilers and drivers "
                   "need; may be repeated")
      ->allow_extra_args(false)
      ->type_name("NAME")
      ->group("Security");
}

void StartLog(const ServiceFlags& flags) {
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(flags.log_level, level);
  SetLogLevel(level);
}

api::Endpoint EndpointOf(const std::string& addresses, const SecurityFlags& flags) {
  return {addresses,    flags.token_file,    flags.tls.cert, flags.tls.key,
          flags.tls.ca, flags.allow_no_role, flags.insecure};
}

absl::StatusOr<std::shared_ptr<const ClientCredentials>> DialWith(const std::string& flag, const std::string& addresses,
                                                                  const SecurityFlags& flags) {
  return api::CredentialsFor(flag, EndpointOf(addresses, flags));
}

absl::StatusOr<ServerCredentials> ListenWith(const std::string& flag, const std::string& address,
                                             const SecurityFlags& flags) {
  RETURN_IF_ERROR(CheckAddress(flag, address));
  RETURN_IF_ERROR(CheckPlainText(flag, address, flags.insecure || flags.tls.given()));
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
