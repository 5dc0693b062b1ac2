#include "cli/service_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/flags.h"

namespace diapason {
void AddServiceFlags(CLI::App* command, ServiceFlags* flags, ConnectionSide side) {
  command
      ->add_option("--log-level", flags->log_level, "Events logged on stderr: error, warning, info (default) or debug")
      ->check(CLI::Validator(
          [](std::string& text) {
            const bool known = text == "error" || text == "warning" || text == "info" || text == "debug";
            return known ? std::string() : text + ": give error, warning, info or debug";
          },
          ""))
      ->type_name("LEVEL");
  command
      ->add_option("--metrics", flags->metrics,
                   "Serve metrics for Prometheus at http://HOST:PORT/metrics, unencrypted and without authorization")
      ->type_name("HOST:PORT");
  AddSecurityFlags(command, &flags->security, side);
}

void AddQuotaFlags(CLI::App* command, api::TokenQuotas* quotas) {
  const api::TokenQuotas &usual = api::kDefaultTokenQuotas, &most = api::kLargestTokenQuotas;
  AddWhole(command, "--max-queues-per-token", &quotas->queues, {1, most.queues},
           absl::StrCat("Tuners and jobs that measure at the same time (default ", usual.queues, ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-pending-per-token", &quotas->pending, {1, most.pending},
           absl::StrCat("Measurements that are queued, running or not yet fetched (default ", usual.pending, ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-stored-mib-per-token", &quotas->stored_mib, {1, most.stored_mib},
           absl::StrCat("Total size in MiB of these measurements and their results (default ", usual.stored_mib, ")"))
      ->group(kQuotaGroup);
}

void AddSecurityFlags(CLI::App* command, SecurityFlags* flags, ConnectionSide side) {
  const char* group = "Security";
  auto file = [&](const std::string& name, std::string* value, const std::string& help) {
    command->add_option(name, *value, help)->type_name("FILE")->group(group);
  };
  file("--tls-cert", &flags->tls_cert,
       "Certificate to present (PEM); with --tls-key and --tls-ca, mutual TLS is required; files are reloaded when "
       "they change");
  file("--tls-key", &flags->tls_key, "Private key of the certificate");
  file("--tls-ca", &flags->tls_ca, "Certificate of the authority whose certificates are accepted");
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
            const bool known = text == "auto" || text == "on" || text == "off";
            return known ? std::string() : text + ": give auto, on or off";
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

void StartLog(const ServiceFlags& flags) { DIAPASON_CHECK(api::SetLogLevel(flags.log_level).ok()); }
void StopLog() { DIAPASON_CHECK(api::SetLogLevel("none").ok()); }

api::Endpoint EndpointOf(const std::string& addresses, const SecurityFlags& flags) {
  return {addresses,    flags.token_file,    flags.tls_cert, flags.tls_key,
          flags.tls_ca, flags.allow_no_role, flags.insecure};
}

api::ListenOptions ListenAt(const std::string& address, const SecurityFlags& flags) {
  return {address, flags.tokens, flags.tls_cert, flags.tls_key, flags.tls_ca, flags.allow_no_role, flags.insecure};
}

}  // namespace diapason
