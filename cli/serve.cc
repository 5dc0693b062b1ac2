// diapason serve: the coordinator service.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/host_name.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/launch_flags.h"
#include "cli/page_flags.h"
#include "cli/page_sources.h"
#include "cli/self_check.h"
#include "cli/service_flags.h"
#include "service/server.h"
#include "service/tune_spec.h"
#include "service/worker_pool.h"

namespace diapason {
namespace {

struct ServeFlags {
  ServiceFlags service;
  QuotaFlags quotas;
  LaunchFlags launch;
  ImportFlags import;
  std::string listen, history, tracker, state, http;
  int64_t running = 4, unfinished = 256, unfinished_per_token = JobManagerOptions().unfinished_per_token;
  int64_t max_models = ModelStoreLimits().models;
  double max_models_gib = static_cast<double>(ModelStoreLimits().bytes >> 30);
};

// Where other hosts reach what listens there: "all addresses" is none that can be dialled.
std::string Reachable(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  return host == "0.0.0.0" || host == "[::]" ? HostName() + address.substr(colon) : address;
}

// Where the page is asked for. `server` outlives it.
absl::StatusOr<std::unique_ptr<PageServer>> StartPage(const ServeFlags& flags,
                                                      const std::shared_ptr<const ClientCredentials>& credentials,
                                                      CoordinatorServer& server) {
  if (flags.http.empty()) return nullptr;
  PageOptions options;
  options.address = flags.http;
  ASSIGN_OR_RETURN(options.credentials, ShowPageWith(flags.http, flags.service.security));
  options.history = flags.history;
  options.explain = ExplainApart(flags.history);
  options.jobs = JobsOf(server);
  options.job = JobOf(server);
  options.fleet = FleetOf(server.tracker(), credentials);
  return PageServer::Start(std::move(options));
}

absl::Status RunServe(const ServeFlags& flags, Session& session) {
  CoordinatorOptions options;
  ASSIGN_OR_RETURN(options.credentials, ListenWith("--listen", flags.listen, flags.service.security));
  if (!flags.tracker.empty()) {
    ASSIGN_OR_RETURN(options.jobs.credentials, DialWith("--tracker", flags.tracker, flags.service.security));
    if (!flags.state.empty()) {
      return absl::InvalidArgumentError("--state is for the service's own tracker; with --tracker there is none");
    }
    if (flags.quotas.given()) {
      return absl::InvalidArgumentError(
          "quotas per token are for the service's own tracker; give them to the one of --tracker instead");
    }
  }
  if (!flags.http.empty()) RETURN_IF_ERROR(ShowPageWith(flags.http, flags.service.security).status());
  flags.quotas.ApplyTo(options.own_tracker);
  RETURN_IF_ERROR(CheckLaunchFlags(flags.launch));
  StartLog(flags.service);
  options.listen = flags.listen;
  options.tracker = flags.tracker;
  options.state = flags.state;
  options.jobs.history = flags.history;
  options.jobs.running = static_cast<int>(flags.running);
  options.jobs.unfinished = static_cast<int>(flags.unfinished);
  options.jobs.unfinished_per_token = static_cast<int>(flags.unfinished_per_token);
  options.jobs.import = flags.import.limits();
  options.jobs.models.models = flags.max_models;
  options.jobs.models.bytes = static_cast<int64_t>(flags.max_models_gib * static_cast<double>(int64_t{1} << 30));
  const auto credentials = options.jobs.credentials;
  const std::optional<TlsIdentity> shown = options.credentials.tls;
  ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server, CoordinatorServer::Start(std::move(options)));
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerPool> pool,
                   StartWorkers(flags.launch, flags.tracker.empty() ? Reachable(server->address()) : flags.tracker,
                                server->tracker(), credentials, OwnerOfFile(flags.history)));
  ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics,
                   StartMetrics(flags.service, [&server] { return server->Metrics(); }));
  auto self_check = std::make_unique<SelfCheck>(server->address(), shown);
  ASSIGN_OR_RETURN(std::unique_ptr<PageServer> page, StartPage(flags, credentials, *server));
  session.out << "service listens on " << server->address() << "\n";
  if (page != nullptr) session.out << "page at " << page->url() << "\n";
  session.out << std::flush;
  WaitForStop();
  self_check.reset();
  LogEvent(LogLevel::kInfo, "service_stops", {});
  page.reset();
  metrics.reset();
  server.reset();
  SetLogLevel(LogLevel::kNone);
  return absl::OkStatus();
}

}  // namespace

void AddServe(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("serve", "Run the service that takes tuning jobs and answers for a history");
  command->footer(
      "Jobs are kept in FILE.jobs, models in FILE.models. A service that was stopped or killed goes on with every "
      "unfinished "
      "job when it is started again.");
  auto flags = std::make_shared<ServeFlags>();
  command->add_option("--listen", flags->listen, "Address to listen on; port 0 takes a free one")
      ->required()
      ->type_name("HOST:PORT");
  command->add_option("--history", flags->history, "History of all jobs; made when there is none")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--tracker", flags->tracker,
                   "Tracker of the fleet (default: one of its own, which workers reach at --listen)")
      ->type_name("HOST:PORT");
  command->add_option("--state", flags->state, "State of its own tracker (default: FILE.tracker)")->type_name("FILE");
  command
      ->add_option(
          "--http", flags->http,
          "Show jobs, history and fleet as a page here too, with the certificates and tokens of --listen; port "
          "0 takes a free one")
      ->type_name("HOST:PORT");
  AddWhole(command, "--max-running-jobs", &flags->running, 1, 64, "Jobs at once (default 4)");
  AddWhole(command, "--max-queued-jobs", &flags->unfinished, 1, 100000,
           "Jobs that may wait or run; more are refused (default 256)");
  AddWhole(command, "--max-unfinished-jobs-per-token", &flags->unfinished_per_token, 1, 100000,
           absl::StrCat("Jobs, submitted or resumed with the token, that may wait or run (default ",
                        JobManagerOptions().unfinished_per_token, ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-models", &flags->max_models, 1, 1000000,
           "Models that are kept; those used longest ago go when no unfinished job has them (default 1000)");
  AddNumber(command, "--max-models-gib", &flags->max_models_gib, 0,
            "GiB of models that are kept, likewise (default 64)");
  AddImportFlags(command, &flags->import);
  AddLaunchFlags(command, &flags->launch);
  AddQuotaFlags(command, &flags->quotas);
  AddServiceFlags(command, &flags->service, Ends::kBoth);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunServe(*flags, session); }; });
}

}  // namespace diapason
