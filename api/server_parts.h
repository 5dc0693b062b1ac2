// What the servers of the library have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "diapason/servers.h"
#include "worker/rpc/metrics.h"
#include "worker/rpc/security.h"
#include "worker/tracker/options.h"

namespace diapason::api {

// What to present at the address, and to accept there. `flag`: the option that gives the address ("--listen"), which is
// validated. PermissionDenied: the connection would be unencrypted and leave this host without `insecure`; other
// errors: of certificates and tokens.
absl::StatusOr<ServerCredentials> CredentialsToListen(const std::string& flag, const ListenOptions& listen);
// The same for the page (`--http`), which needs tokens beyond this host.
absl::StatusOr<ServerCredentials> CredentialsForPage(const ListenOptions& http);

// The server of /metrics.
struct MetricsRequest {
  std::string address;    // empty: none
  bool insecure = false;  // plain text may leave this host
  TlsFiles tls;           // whose expiry is a metric
};
MetricsRequest MetricsOf(const std::string& address, const ListenOptions& listen);
// Null without an address. REQUIRES: everything that `collect` uses outlives the server.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(const MetricsRequest& request,
                                                            std::function<std::vector<Metric>()> collect);

// InvalidArgument: a quota out of range.
absl::Status ApplyQuotas(const TokenQuotas& quotas, ::diapason::TrackerOptions& options);

// A number of the options, and what it may be.
struct OptionRange {
  const char* name;
  int64_t value, least, most;
};
// InvalidArgument names the first that is out of range.
absl::Status CheckRanges(const std::vector<OptionRange>& ranges);

// Returns when hooks.stop is true, or `ended` returns true (it is called ten times a second; may be empty).
void WaitForStop(const Hooks& hooks, const std::function<bool()>& ended = nullptr);

}  // namespace diapason::api
