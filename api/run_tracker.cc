#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/self_check.h"
#include "api/server_parts.h"
#include "base/check.h"
#include "diapason/servers.h"
#include "worker/rpc/log.h"
#include "worker/tracker/server.h"

namespace diapason::api {
namespace {

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

absl::Status CheckTimes(const TrackerOptions& options) {
  const double heartbeat = options.heartbeat_seconds, session = options.session_seconds, lease = options.lease_seconds;
  if (heartbeat > 0 && session > 2 * heartbeat && lease >= session) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--heartbeat ", heartbeat, ", --session ", session, " and --lease ", lease,
      " do not fit each other: a session is to last more than two heartbeats, and a lease no less than a session"));
}

absl::StatusOr<::diapason::TrackerOptions> TrackerOptionsOf(const TrackerOptions& given) {
  RETURN_IF_ERROR(CheckTimes(given));
  RETURN_IF_ERROR(CheckRanges({{"max_pending", given.max_pending, 1, 1 << 20}}));
  ::diapason::TrackerOptions options;
  options.heartbeat = Milliseconds(given.heartbeat_seconds);
  options.session = Milliseconds(given.session_seconds);
  options.lease = Milliseconds(given.lease_seconds);
  options.queue_expiry = Milliseconds(given.queue_expiry_seconds);
  options.exclude_drift = given.exclude_drift;
  options.max_pending = static_cast<uint32_t>(given.max_pending);
  RETURN_IF_ERROR(ApplyQuotas(given.quotas, options));
  return options;
}

}  // namespace

absl::Status RunTracker(const TrackerOptions& options) {
  ASSIGN_OR_RETURN(const ServerCredentials credentials, CredentialsToListen("--listen", options.listen));
  ASSIGN_OR_RETURN(::diapason::TrackerOptions tracker, TrackerOptionsOf(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<TrackerServer> server,
                   TrackerServer::Start({options.listen.address, credentials}, std::move(tracker), options.state));
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics,
                   StartMetrics(MetricsOf(options.metrics, options.listen), [&server] { return server->Metrics(); }));
  auto self_check = std::make_unique<SelfCheck>(server->address(), credentials.tls);
  if (options.on_listen) options.on_listen(server->address());
  WaitForStop(options.hooks);
  self_check.reset();
  LogEvent(LogLevel::kInfo, "tracker_stops", {});
  server->Shutdown();
  return absl::OkStatus();
}

}  // namespace diapason::api
