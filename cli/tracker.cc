// diapason tracker: the registry of workers and the queue of measurements.
#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>
#include <optional>
#include <ostream>

#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/service_flags.h"
#include "diapason/servers.h"

namespace diapason {
namespace {

struct TrackerFlags {
  ServiceFlags service;
  std::string listen;
  api::TrackerOptions options;
};

absl::Status RunTracker(const TrackerFlags& flags, Session& session) {
  std::atomic<bool> stop{false};
  std::optional<InterruptGuard> interrupt;
  api::TrackerOptions options = flags.options;
  options.listen = ListenAt(flags.listen, flags.service.security);
  options.metrics = flags.service.metrics;
  options.on_listen = [&](const std::string& address) {
    session.out << "tracker listens on " << address << "\n" << std::flush;
    interrupt.emplace(&stop, SecondSignal::kAsBefore);
  };
  options.hooks.stop = &stop;
  StartLog(flags.service);
  RETURN_IF_ERROR(api::RunTracker(options));
  StopLog();
  return absl::OkStatus();
}

}  // namespace

void AddTracker(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("tracker", "Run the registry of workers and the queue of measurements");
  command->footer(
      "Workers and tuners connect to the tracker. Without --state, a restarted tracker has no knowledge of earlier "
      "leases: workers and tuners register again by themselves, and running measurements are repeated.");
  auto flags = std::make_shared<TrackerFlags>();
  api::TrackerOptions* options = &flags->options;
  AddListenFlag(command, &flags->listen);
  command->add_option("--state", options->state, "File that keeps queues, leases and results across restarts")
      ->type_name("FILE");
  AddNumber(command, "--heartbeat", &options->heartbeat_seconds, 0,
            "Seconds between the reports of a worker (default 1)");
  AddNumber(command, "--session", &options->session_seconds, 0,
            "Seconds without a report after which a worker counts as lost (default 10)");
  AddNumber(command, "--lease", &options->lease_seconds, 0,
            "Seconds after which a lease that is not renewed expires, and its measurement runs elsewhere (default 15)");
  AddNumber(command, "--queue-expiry", &options->queue_expiry_seconds, 0,
            "Seconds without a call after which a tuner is forgotten (default 60)");
  AddNumber(command, "--exclude-drift", &options->exclude_drift, 1,
            "Take a device out of service while its reference-kernel time differs by more than this ratio from that of "
            "other devices of its model (default: only `fleet status` shows drift)");
  AddWhole(command, "--max-pending", &options->max_pending, {1, 1 << 20},
           "Measurements that one tuner may have queued (default 4096)");
  AddQuotaFlags(command, &options->quotas);
  AddServiceFlags(command, &flags->service, ConnectionSide::kServer);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTracker(*flags, session); }; });
}

}  // namespace diapason
