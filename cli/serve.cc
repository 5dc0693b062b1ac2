// diapason serve: the coordinator service.
#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/launch_flags.h"
#include "cli/service_flags.h"
#include "diapason/servers.h"

namespace diapason {
namespace {

struct ServeFlags {
  ServiceFlags service;
  LaunchFlags launch;
  ImportFlags import;
  std::string listen, tracker;
  api::ServeOptions options;
};

api::ServeOptions ServeOptionsOf(const ServeFlags& flags) {
  api::ServeOptions options = flags.options;
  options.listen = ListenAt(flags.listen, flags.service.security);
  if (!flags.tracker.empty()) options.tracker = EndpointOf(flags.tracker, flags.service.security);
  options.metrics = flags.service.metrics;
  options.import_memory_gib = flags.import.memory_gib;
  options.import_seconds = flags.import.seconds;
  options.launch = LaunchRequestOf(flags.launch);
  return options;
}

absl::Status RunServe(const ServeFlags& flags, Session& session) {
  api::ServeOptions options = ServeOptionsOf(flags);
  std::atomic<bool> stop{false};
  options.on_listen = [&](const std::string& address, const std::string& page) {
    session.out << "service listens on " << address << "\n";
    if (!page.empty()) session.out << "page at " << page << "\n";
    session.out << std::flush;
  };
  options.on_standby = [&](const std::string& active) {
    session.out << "standby: " << active << " has the history's lease; this service takes over when it ends\n"
                << std::flush;
  };
  options.hooks.stop = &stop;
  const InterruptGuard interrupt(&stop);
  StartLog(flags.service);
  RETURN_IF_ERROR(api::Serve(options));
  StopLog();
  return absl::OkStatus();
}

}  // namespace

void AddServe(CLI::App& app, CommandBody& chosen) {
  CLI::App* command =
      app.add_subcommand("serve", "Run the service that accepts tuning jobs and answers queries of a history");
  command->footer(
      "Jobs are kept in FILE.jobs, models in FILE.models; with a history in PostgreSQL, in the database. A service "
      "that was stopped or killed resumes every unfinished job when it is restarted. Of several services with one "
      "history in PostgreSQL, one is active; the others are standbys, with --listen, --http and --metrics closed, and "
      "one of them takes over when it stops.");
  auto flags = std::make_shared<ServeFlags>();
  api::ServeOptions* options = &flags->options;
  AddListenFlag(command, &flags->listen);
  command->add_option("--history", options->history, "History of all jobs; created if it does not exist")
      ->required()
      ->type_name("FILE");
  AddNumber(command, "--history-lease", &options->lease_seconds, 0.1,
            "Seconds without a renewal after which another service with the same history in PostgreSQL takes over "
            "(default 15)");
  command
      ->add_option("--tracker", flags->tracker,
                   "Tracker of the fleet (default: the service runs its own, which workers reach at --listen)")
      ->type_name("HOST:PORT[,HOST:PORT]");
  command
      ->add_option("--state", options->state, "File for the state of the service's own tracker (default: FILE.tracker)")
      ->type_name("FILE");
  command
      ->add_option("--http", options->http,
                   "Serve a page with jobs, history and fleet, with the certificates and tokens of --listen; port 0 "
                   "selects a free port")
      ->type_name("HOST:PORT");
  AddWhole(command, "--max-running-jobs", &options->max_running_jobs, {1, 64},
           "Jobs that run at the same time (default 4)");
  AddWhole(command, "--max-queued-jobs", &options->max_queued_jobs, {1, 100000},
           "Jobs that may wait or run; further ones are rejected (default 256)");
  AddWhole(command, "--max-unfinished-jobs-per-token", &options->max_unfinished_jobs_per_token, {1, 100000},
           absl::StrCat("Unfinished jobs submitted or resumed with the token (default ",
                        options->max_unfinished_jobs_per_token, ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-models", &options->max_models, {1, 1000000},
           "Number of models to keep; the least recently used are removed, unless an unfinished job needs them "
           "(default 1000)");
  AddNumber(command, "--max-models-gib", &options->max_models_gib, 0,
            "Total size in GiB of the models to keep (default 64)");
  AddImportFlags(command, &flags->import);
  AddLaunchFlags(command, &flags->launch);
  AddQuotaFlags(command, &options->quotas);
  AddServiceFlags(command, &flags->service, ConnectionSide::kBoth);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunServe(*flags, session); }; });
}

}  // namespace diapason
