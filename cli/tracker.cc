// diapason tracker: the registry of workers and the queue of measurements.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/self_check.h"
#include "cli/service_flags.h"
#include "worker/tracker/server.h"

namespace diapason {
namespace {

struct TrackerFlags {
  ServiceFlags service;
  QuotaFlags quotas;
  std::string listen, state;
  double heartbeat = 1, session = 10, lease = 15, queue_expiry = 60, exclude_drift = 0;
  int64_t max_pending = 4096;
};

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

absl::Status RunTracker(const TrackerFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const ServerCredentials credentials, ListenWith("--listen", flags.listen, flags.service.security));
  if (flags.session <= 2 * flags.heartbeat || flags.lease < flags.session) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--heartbeat ", flags.heartbeat, ", --session ", flags.session, " and --lease ", flags.lease,
        " do not fit each other: a session is to last more than two heartbeats, and a lease no less than a session"));
  }
  StartLog(flags.service);
  TrackerOptions options;
  options.heartbeat = Milliseconds(flags.heartbeat);
  options.session = Milliseconds(flags.session);
  options.lease = Milliseconds(flags.lease);
  options.queue_expiry = Milliseconds(flags.queue_expiry);
  options.exclude_drift = flags.exclude_drift;
  options.max_pending = static_cast<uint32_t>(flags.max_pending);
  flags.quotas.ApplyTo(options);
  ASSIGN_OR_RETURN(const std::unique_ptr<TrackerServer> server,
                   TrackerServer::Start({flags.listen, credentials}, std::move(options), flags.state));
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics,
                   StartMetrics(flags.service, [&server] { return server->Metrics(); }));
  auto self_check = std::make_unique<SelfCheck>(server->address(), credentials.tls);
  session.out << "tracker listens on " << server->address() << "\n" << std::flush;
  WaitForStop();
  self_check.reset();
  LogEvent(LogLevel::kInfo, "tracker_stops", {});
  server->Shutdown();
  SetLogLevel(LogLevel::kNone);
  return absl::OkStatus();
}

}  // namespace

void AddTracker(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("tracker", "Run the registry of workers and the queue of measurements");
  command->footer(
      "Workers and tuners connect to the tracker. Without --state, a restarted tracker has no knowledge of earlier "
      "leases: workers and tuners register again by themselves, and running measurements are repeated.");
  auto flags = std::make_shared<TrackerFlags>();
  AddListenFlag(command, &flags->listen);
  command->add_option("--state", flags->state, "File that keeps queues, leases and results across restarts")
      ->type_name("FILE");
  AddNumber(command, "--heartbeat", &flags->heartbeat, 0, "Seconds between the reports of a worker (default 1)");
  AddNumber(command, "--session", &flags->session, 0,
            "Seconds without a report after which a worker counts as lost (default 10)");
  AddNumber(command, "--lease", &flags->lease, 0,
            "Seconds after which a lease that is not renewed expires, and its measurement runs elsewhere (default 15)");
  AddNumber(command, "--queue-expiry", &flags->queue_expiry, 0,
            "Seconds without a call after which a tuner is forgotten (default 60)");
  AddNumber(command, "--exclude-drift", &flags->exclude_drift, 1,
            "Take a device out of service while its reference-kernel time differs by more than this ratio from that of "
            "other devices of its model (default: only `fleet status` shows drift)");
  AddWhole(command, "--max-pending", &flags->max_pending, {1, 1 << 20},
           "Measurements that one tuner may have queued (default 4096)");
  AddQuotaFlags(command, &flags->quotas);
  AddServiceFlags(command, &flags->service, ConnectionSide::kServer);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTracker(*flags, session); }; });
}

}  // namespace diapason
