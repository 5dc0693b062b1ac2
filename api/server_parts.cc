#include "api/server_parts.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/version.h"
#include "base/check.h"
#include "worker/rpc/address.h"
#include "worker/rpc/log.h"
#include "worker/rpc/tls_watch.h"
#include "worker/rpc/tokens.h"

namespace diapason::api {

absl::StatusOr<ServerCredentials> CredentialsToListen(const std::string& flag, const ListenOptions& listen) {
  const TlsFiles tls{listen.tls_cert, listen.tls_key, listen.tls_ca};
  RETURN_IF_ERROR(CheckAddress(flag, listen.address));
  RETURN_IF_ERROR(CheckPlainText(flag, listen.address, listen.insecure || tls.given()));
  ServerCredentials credentials;
  if (tls.given()) {
    ASSIGN_OR_RETURN(credentials.tls, LoadTls(tls, {.listens = true, .allow_no_role = listen.allow_no_role}));
  }
  if (!listen.tokens.empty()) {
    ASSIGN_OR_RETURN(credentials.authority, Authority::Load(listen.tokens));
  }
  return credentials;
}

absl::StatusOr<ServerCredentials> CredentialsForPage(const ListenOptions& http) {
  RETURN_IF_ERROR(CheckAddress("--http", http.address));
  if (http.tokens.empty() && !IsLoopback(http.address)) {
    return absl::PermissionDeniedError(
        absl::StrCat("--http ", http.address,
                     " would show the history to every host that can reach it; give --tokens with "
                     "a file of tokens, or an address of this host alone such as ",
                     kPageAddress));
  }
  return CredentialsToListen("--http", http);
}

MetricsRequest MetricsOf(const std::string& address, const ListenOptions& listen) {
  return {address, listen.insecure, {listen.tls_cert, listen.tls_key, listen.tls_ca}};
}

absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const MetricsRequest& request,
                                                            std::function<std::vector<Metric>()> collect) {
  if (request.address.empty()) return nullptr;
  RETURN_IF_ERROR(CheckAddress("--metrics", request.address));
  if (!IsLoopback(request.address) && !request.insecure) {
    return absl::PermissionDeniedError(
        absl::StrCat("--metrics ", request.address,
                     " would speak plain text beyond this host; add --insecure if every host that can reach it is "
                     "trusted, or let something on this host fetch them"));
  }
  auto with_program = [collect = std::move(collect), tls = request.tls] {
    std::vector<Metric> metrics = collect();
    metrics.push_back(
        {"diapason_build_info", "The program; always 1", Metric::Type::kGauge, {{{{"version", kVersion}}, 1, {}}}});
    if (tls.given()) {
      metrics.push_back(Metric::Gauge("diapason_certificate_expiry_timestamp_seconds",
                                      "When the certificate in use expires, in Unix time", ExpiryInUse(tls)));
    }
    return metrics;
  };
  ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server,
                   MetricsServer::Start(request.address, std::move(with_program)));
  LogEvent(LogLevel::kInfo, "metrics_served", {{"address", server->address()}});
  return server;
}

absl::Status ApplyQuotas(const TokenQuotas& quotas, ::diapason::TrackerOptions& options) {
  const TokenQuotas& most = kLargestTokenQuotas;
  RETURN_IF_ERROR(CheckRanges({{"the quota of queues", quotas.queues, 0, most.queues},
                               {"the quota of pending measurements", quotas.pending, 0, most.pending},
                               {"the quota of stored MiB", quotas.stored_mib, 0, most.stored_mib}}));
  if (quotas.queues > 0) options.max_queues_per_token = static_cast<uint32_t>(quotas.queues);
  if (quotas.pending > 0) options.max_pending_per_token = static_cast<uint32_t>(quotas.pending);
  if (quotas.stored_mib > 0) options.max_stored_bytes_per_token = static_cast<size_t>(quotas.stored_mib) << 20;
  return absl::OkStatus();
}

absl::Status CheckRanges(const std::vector<OptionRange>& ranges) {
  for (const OptionRange& range : ranges)
    if (range.value < range.least || range.value > range.most)
      return absl::InvalidArgumentError(
          absl::StrCat(range.name, " is ", range.value, "; give a number from ", range.least, " to ", range.most));
  return absl::OkStatus();
}

void WaitForStop(const Hooks& hooks, const std::function<bool()>& ended) {
  while ((hooks.stop == nullptr || !*hooks.stop) && (ended == nullptr || !ended()))
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

absl::Status SetLogLevel(const std::string& level) {
  LogLevel parsed = LogLevel::kNone;
  if (level != "none" && !ParseLogLevel(level, parsed))
    return absl::InvalidArgumentError(
        absl::StrCat("the log level is '", level, "'; give none, error, warning, info or debug"));
  ::diapason::SetLogLevel(parsed);
  return absl::OkStatus();
}

}  // namespace diapason::api
