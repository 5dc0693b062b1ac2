// diapason fleet status: workers, devices and queues of a tracker. diapason fleet health: whether it serves.
#include "diapason/fleet.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/service_flags.h"
#include "cli/table.h"

namespace diapason {
namespace {

struct FleetFlags {
  std::string tracker;
  double wait = 5;
  bool json = false;
  SecurityFlags security;
};

std::string StateOf(const api::FleetStatus::Device& device) {
  std::string state = device.state;
  if (device.drifts()) absl::StrAppend(&state, ", drifts ", absl::StrFormat("%.2fx", device.drift));
  if (device.excluded) absl::StrAppend(&state, ", excluded");
  return state;
}

std::string Percent(double share) { return absl::StrFormat("%.0f%%", 100 * share); }

std::string Ago(double seconds) { return seconds < 60 ? absl::StrFormat("%.1f s", seconds) : ClockText(seconds); }

void PrintText(std::ostream& out, const api::FleetStatus& status) {
  TextTable models({{"key"}, {"total", true}, {"free", true}, {"pending", true}});
  for (const auto& m : status.models) {
    models.AddRow({absl::StrCat(m.kind, m.model.empty() ? " (any)" : " " + m.model), absl::StrCat(m.total),
                   absl::StrCat(m.free), absl::StrCat(m.pending)});
  }
  TextTable devices({{"host"},
                     {"worker"},
                     {"device"},
                     {"model"},
                     {"uuid"},
                     {"state"},
                     {"leases", true},
                     {"trials/s", true},
                     {"busy", true},
                     {"errors", true},
                     {"seen", true}});
  for (const auto& d : status.devices) {
    devices.AddRow({d.host, d.worker, d.name, d.model, d.uuid.empty() ? "-" : d.uuid, StateOf(d),
                    absl::StrCat(d.leases), absl::StrFormat("%.2f", d.trials_per_s), Percent(d.utilisation),
                    Percent(d.error_rate), Ago(d.last_seen_s)});
  }
  TextTable queues(
      {{"queue"}, {"priority", true}, {"weight", true}, {"pending", true}, {"leased", true}, {"done", true}});
  for (const auto& q : status.queues) {
    queues.AddRow({q.name, absl::StrCat(q.priority), absl::StrFormat("%g", q.weight), absl::StrCat(q.pending),
                   absl::StrCat(q.leased), absl::StrCat(q.done)});
  }
  out << models.ToString() << "\n" << devices.ToString();
  for (const auto& d : status.devices) {
    if (!d.reason.empty()) out << d.worker << " " << d.name << " is " << d.state << ": " << d.reason << "\n";
  }
  if (!status.queues.empty()) out << "\n" << queues.ToString();
}

struct HealthFlags {
  SecurityFlags security;
  std::string address;
  double timeout = 3;
};

absl::Status RunHealth(const HealthFlags& flags, Session& session) {
  RETURN_IF_ERROR(api::CheckHealth(EndpointOf(flags.address, flags.security), flags.timeout));
  session.out << "serving\n";
  return absl::OkStatus();
}

void AddHealth(CLI::App& fleet, CommandBody& chosen) {
  CLI::App* command = fleet.add_subcommand("health", "Check whether a tracker or service is serving, for probes");
  command->footer("Needs no token. The exit status is 0 if it is serving and 1 otherwise.");
  auto flags = std::make_shared<HealthFlags>();
  command->add_option("--address", flags->address, "Address of the tracker or service")
      ->required()
      ->type_name("HOST:PORT");
  AddNumber(command, "--timeout", &flags->timeout, 0, "Seconds to wait for the answer (default 3)");
  AddSecurityFlags(command, &flags->security);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunHealth(*flags, session); }; });
}

absl::Status RunStatus(const FleetFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::FleetStatus status, api::AskFleet(EndpointOf(flags.tracker, flags.security), flags.wait));
  if (flags.json) {
    session.out << api::FleetJson(status);
  } else {
    PrintText(session.out, status);
  }
  return absl::OkStatus();
}

}  // namespace

void AddFleet(CLI::App& app, CommandBody& chosen) {
  CLI::App* fleet = app.add_subcommand("fleet", "Show the workers of a tracker, or whether it is serving");
  fleet->require_subcommand(1);
  AddHealth(*fleet, chosen);
  CLI::App* command = fleet->add_subcommand("status", "Show devices, their workers and the queues");
  command->footer(
      "trials/s, busy and errors refer to the last minute. A device drifts if its reference-kernel time differs by "
      "more than 10% from that of other devices of its model.");
  auto flags = std::make_shared<FleetFlags>();
  AddTrackerFlag(command, &flags->tracker);
  AddNumber(command, "--wait-timeout", &flags->wait, 0, "Seconds to wait if the tracker does not answer (default 5)");
  AddJsonFlag(command, &flags->json);
  AddSecurityFlags(command, &flags->security);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunStatus(*flags, session); }; });
}

}  // namespace diapason
