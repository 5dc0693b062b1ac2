// diapason serve: the coordinator service.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/import.h"
#include "api/launch.h"
#include "base/check.h"
#include "base/host_name.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/launch_flags.h"
#include "cli/page_flags.h"
#include "cli/page_sources.h"
#include "cli/self_check.h"
#include "cli/service_flags.h"
#include "db/history_name.h"
#include "db/schema.h"
#include "db/service_lease.h"
#include "service/server.h"
#include "service/tune_spec.h"
#include "service/worker_pool.h"

namespace diapason {
namespace {

constexpr double kLeaseSeconds = 15;
// How often a service that stands by looks whether it may take over.
constexpr std::chrono::milliseconds kLookAtLease{500};

struct ServeFlags {
  ServiceFlags service;
  QuotaFlags quotas;
  LaunchFlags launch;
  ImportFlags import;
  std::string listen, history, tracker, state, http;
  int64_t running = 4, unfinished = 256, unfinished_per_token = JobManagerOptions().unfinished_per_token;
  int64_t max_models = ModelStoreLimits().models;
  double lease_seconds = 0;  // 0: kLeaseSeconds
  double max_models_gib = static_cast<double>(ModelStoreLimits().bytes >> 30);
};

// The state of a tracker is of use as long as no other service had workers and queues in between: the file beside it
// says of which time with the lease it is.
void ForgetOldState(const std::string& state, int64_t epoch) {
  const std::string note = state + ".epoch";
  int64_t kept = 0;
  std::ifstream(note) >> kept;
  if (kept != epoch - 1) RemoveDatabase(state);
  std::ofstream(note, std::ios::trunc) << epoch << "\n";
}

// Where other hosts reach what listens there: nobody can connect to "all addresses".
std::string AddressForOthers(const std::string& address) {
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

absl::StatusOr<CoordinatorOptions> OptionsOf(const ServeFlags& flags) {
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
  if (flags.lease_seconds > 0 && !IsPostgresUri(flags.history)) {
    return absl::InvalidArgumentError(
        "--history-lease is for services that share a history in PostgreSQL; leave it out for one in a file");
  }
  if (!flags.http.empty()) RETURN_IF_ERROR(ShowPageWith(flags.http, flags.service.security).status());
  flags.quotas.ApplyTo(options.own_tracker);
  RETURN_IF_ERROR(api::CheckOptions(LaunchRequestOf(flags.launch)));
  options.listen = flags.listen;
  options.tracker = flags.tracker;
  options.state = flags.state;
  options.jobs.history = flags.history;
  options.jobs.running = static_cast<int>(flags.running);
  options.jobs.unfinished = static_cast<int>(flags.unfinished);
  options.jobs.unfinished_per_token = static_cast<int>(flags.unfinished_per_token);
  api::Model limited;
  limited.import_memory_gib = flags.import.memory_gib;
  limited.import_seconds = flags.import.seconds;
  options.jobs.import = api::LimitsOf(limited);
  options.jobs.models.models = flags.max_models;
  options.jobs.models.bytes = static_cast<int64_t>(flags.max_models_gib * static_cast<double>(int64_t{1} << 30));
  return options;
}

// A service until it is asked to stop; of a history that services share, in turns: one that stands by, one that acts.
class Serving {
 public:
  Serving(const ServeFlags& flags, CoordinatorOptions options, Session& session)
      : flags_(flags), options_(std::move(options)), session_(session), interrupt_(&stop_) {}

  absl::Status Run() {
    if (!IsPostgresUri(flags_.history)) return Act(nullptr);
    self_check_ = std::make_unique<SelfCheck>("", options_.credentials.tls);
    if (options_.state.empty()) options_.state = StatePath(flags_.history, ".tracker");
    while (true) {
      ASSIGN_OR_RETURN(const std::unique_ptr<ServiceLease> lease, StandBy());
      if (lease == nullptr) return absl::OkStatus();
      options_.jobs.fence = lease->fence();
      if (flags_.tracker.empty()) ForgetOldState(options_.state, lease->epoch());
      const absl::Status acted = Act(lease.get());
      const absl::Status holds = lease->Holds();
      if (holds.ok() || stop_) return acted;
      LogEvent(LogLevel::kError, "lease_lost", {{"why", std::string(holds.message())}});
      stood_by_ = true;
    }
  }

 private:
  absl::StatusOr<std::unique_ptr<ServiceLease>> StandBy();
  absl::StatusOr<bool> TryTake(std::unique_ptr<ServiceLease>& lease);
  void NoteHolder(const std::string& holder);
  // Until it is to stop, or has lost the lease (null: there is none).
  absl::Status Act(ServiceLease* lease);
  void WaitWhile(const std::function<bool()>& goes_on) const {
    while (!stop_ && goes_on()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }

  const ServeFlags& flags_;
  CoordinatorOptions options_;
  Session& session_;
  std::atomic<bool> stop_{false};
  const InterruptGuard interrupt_;
  std::unique_ptr<SelfCheck> self_check_;
  bool stood_by_ = false;  // a database that is away is waited for
  std::string holder_;     // that was logged last
  std::string away_;       // why the database is away, likewise
};

// Null when it is to stop.
absl::StatusOr<std::unique_ptr<ServiceLease>> Serving::StandBy() {
  std::unique_ptr<ServiceLease> lease;
  holder_.clear();
  while (!stop_) {
    ASSIGN_OR_RETURN(const bool taken, TryTake(lease));
    if (taken) return lease;
    stood_by_ = true;
    const auto look = std::chrono::steady_clock::now() + kLookAtLease;
    WaitWhile([&] { return std::chrono::steady_clock::now() < look; });
  }
  return nullptr;
}

absl::StatusOr<bool> Serving::TryTake(std::unique_ptr<ServiceLease>& lease) {
  std::string holder;
  const auto attempt = [&]() -> absl::StatusOr<bool> {
    if (lease == nullptr) {
      const double seconds = flags_.lease_seconds > 0 ? flags_.lease_seconds : kLeaseSeconds;
      ASSIGN_OR_RETURN(
          lease, ServiceLease::Open(flags_.history, std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000))));
    }
    return lease->Take(AddressForOthers(flags_.listen), holder);
  };
  absl::StatusOr<bool> taken = attempt();
  if (!taken.ok()) {
    if (!stood_by_ || !absl::IsUnavailable(taken.status())) return taken.status();
    if (std::exchange(away_, std::string(taken.status().message())).empty())
      LogEvent(LogLevel::kError, "history_away", {{"why", away_}});
    return false;
  }
  away_.clear();
  if (!*taken) NoteHolder(holder);
  return taken;
}

void Serving::NoteHolder(const std::string& holder) {
  if (holder.empty() || holder == holder_) return;
  holder_ = holder;
  session_.out << "standby: " << holder << " has the history's lease; this service takes over when it ends\n"
               << std::flush;
  LogEvent(LogLevel::kInfo, "standby", {{"active", holder}});
}

absl::Status Serving::Act(ServiceLease* lease) {
  const auto credentials = options_.jobs.credentials;
  ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server, CoordinatorServer::Start(options_));
  if (lease != nullptr) {
    lease->SetAddress(AddressForOthers(server->address()));
    LogEvent(LogLevel::kInfo, "lease_taken", {{"address", server->address()}});
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<WorkerPool> pool,
      api::StartWorkers(LaunchRequestOf(flags_.launch),
                        {.tracker = flags_.tracker.empty() ? AddressForOthers(server->address()) : flags_.tracker,
                         .status = server->tracker(),
                         .credentials = credentials,
                         .owner = api::OwnerOfHistory(flags_.history),
                         .used_up = nullptr}));
  ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics,
                   StartMetrics(flags_.service, [&server] { return server->Metrics(); }));
  if (self_check_ == nullptr) {
    self_check_ = std::make_unique<SelfCheck>(server->address(), options_.credentials.tls);
  } else {
    self_check_->Listens(server->address());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PageServer> page, StartPage(flags_, credentials, *server));
  session_.out << "service listens on " << server->address() << "\n";
  if (page != nullptr) session_.out << "page at " << page->url() << "\n";
  session_.out << std::flush;
  WaitWhile([&] { return lease == nullptr || lease->Holds().ok(); });
  if (stop_) {
    self_check_.reset();
  } else {
    self_check_->Listens("");
  }
  LogEvent(LogLevel::kInfo, "service_stops", {});
  page.reset();
  metrics.reset();
  server.reset();
  return absl::OkStatus();
}

absl::Status RunServe(const ServeFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(CoordinatorOptions options, OptionsOf(flags));
  StartLog(flags.service);
  absl::Status served = Serving(flags, std::move(options), session).Run();
  if (served.ok()) SetLogLevel(LogLevel::kNone);
  return served;
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
  AddListenFlag(command, &flags->listen);
  command->add_option("--history", flags->history, "History of all jobs; created if it does not exist")
      ->required()
      ->type_name("FILE");
  AddNumber(command, "--history-lease", &flags->lease_seconds, 0.1,
            absl::StrCat("Seconds without a renewal after which another service with the same history in PostgreSQL "
                         "takes over (default ",
                         kLeaseSeconds, ")"));
  command
      ->add_option("--tracker", flags->tracker,
                   "Tracker of the fleet (default: the service runs its own, which workers reach at --listen)")
      ->type_name("HOST:PORT[,HOST:PORT]");
  command
      ->add_option("--state", flags->state, "File for the state of the service's own tracker (default: FILE.tracker)")
      ->type_name("FILE");
  command
      ->add_option("--http", flags->http,
                   "Serve a page with jobs, history and fleet, with the certificates and tokens of --listen; port 0 "
                   "selects a free port")
      ->type_name("HOST:PORT");
  AddWhole(command, "--max-running-jobs", &flags->running, {1, 64}, "Jobs that run at the same time (default 4)");
  AddWhole(command, "--max-queued-jobs", &flags->unfinished, {1, 100000},
           "Jobs that may wait or run; further ones are rejected (default 256)");
  AddWhole(command, "--max-unfinished-jobs-per-token", &flags->unfinished_per_token, {1, 100000},
           absl::StrCat("Unfinished jobs submitted or resumed with the token (default ",
                        JobManagerOptions().unfinished_per_token, ")"))
      ->group(kQuotaGroup);
  AddWhole(command, "--max-models", &flags->max_models, {1, 1000000},
           "Number of models to keep; the least recently used are removed, unless an unfinished job needs them "
           "(default 1000)");
  AddNumber(command, "--max-models-gib", &flags->max_models_gib, 0,
            "Total size in GiB of the models to keep (default 64)");
  AddImportFlags(command, &flags->import);
  AddLaunchFlags(command, &flags->launch);
  AddQuotaFlags(command, &flags->quotas);
  AddServiceFlags(command, &flags->service, ConnectionSide::kBoth);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunServe(*flags, session); }; });
}

}  // namespace diapason
