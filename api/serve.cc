#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/endpoint.h"
#include "api/import.h"
#include "api/launch.h"
#include "api/page_sources.h"
#include "api/self_check.h"
#include "api/server_parts.h"
#include "base/check.h"
#include "base/host_name.h"
#include "db/history_name.h"
#include "db/schema.h"
#include "db/service_lease.h"
#include "diapason/servers.h"
#include "service/server.h"
#include "service/worker_pool.h"
#include "worker/rpc/log.h"

namespace diapason::api {
namespace {

constexpr double kLeaseSeconds = 15;
// How often a service that stands by looks whether it may take over.
constexpr std::chrono::milliseconds kLookAtLease{500};

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

ListenOptions PageOf(const ServeOptions& given) {
  ListenOptions http = given.listen;
  http.address = given.http;
  return http;
}

// Null without an address. `server` outlives it.
absl::StatusOr<std::unique_ptr<PageServer>> StartPage(const ServeOptions& given,
                                                      const std::shared_ptr<const ClientCredentials>& credentials,
                                                      CoordinatorServer& server) {
  if (given.http.empty()) return nullptr;
  ::diapason::PageOptions options;
  options.address = given.http;
  ASSIGN_OR_RETURN(options.credentials, CredentialsForPage(PageOf(given)));
  options.history = given.history;
  options.explain = ExplainApart(given.history);
  options.jobs = JobsSource(server);
  options.job = JobSource(server);
  options.fleet = FleetSource(server.tracker(), credentials);
  return PageServer::Start(std::move(options));
}

// Of a tracker elsewhere.
absl::Status CheckTrackerElsewhere(const ServeOptions& given) {
  if (!given.state.empty())
    return absl::InvalidArgumentError("--state is for the service's own tracker; with --tracker there is none");
  if (given.quotas.given())
    return absl::InvalidArgumentError(
        "quotas per token are for the service's own tracker; give them to the one of --tracker instead");
  return absl::OkStatus();
}

absl::Status CheckServe(const ServeOptions& given) {
  constexpr int64_t kMostJobs = 100'000, kMostModels = 1'000'000;
  if (given.lease_seconds > 0 && !::diapason::IsPostgresUri(given.history))
    return absl::InvalidArgumentError(
        "--history-lease is for services that share a history in PostgreSQL; leave it out for one in a file");
  if (!given.http.empty()) RETURN_IF_ERROR(CredentialsForPage(PageOf(given)).status());
  RETURN_IF_ERROR(CheckOptions(given.launch));
  return CheckRanges({{"max_running_jobs", given.max_running_jobs, 1, 64},
                      {"max_queued_jobs", given.max_queued_jobs, 1, kMostJobs},
                      {"max_unfinished_jobs_per_token", given.max_unfinished_jobs_per_token, 1, kMostJobs},
                      {"max_models", given.max_models, 1, kMostModels}});
}

JobManagerOptions JobOptionsOf(const ServeOptions& given) {
  JobManagerOptions jobs;
  jobs.history = given.history;
  jobs.running = static_cast<int>(given.max_running_jobs);
  jobs.unfinished = static_cast<int>(given.max_queued_jobs);
  jobs.unfinished_per_token = static_cast<int>(given.max_unfinished_jobs_per_token);
  Model limited;
  limited.import_memory_gib = given.import_memory_gib;
  limited.import_seconds = given.import_seconds;
  jobs.import = LimitsOf(limited);
  jobs.models.models = given.max_models;
  jobs.models.bytes = static_cast<int64_t>(given.max_models_gib * static_cast<double>(int64_t{1} << 30));
  return jobs;
}

absl::StatusOr<CoordinatorOptions> CoordinatorOptionsOf(const ServeOptions& given) {
  CoordinatorOptions options;
  options.jobs = JobOptionsOf(given);
  ASSIGN_OR_RETURN(options.credentials, CredentialsToListen("--listen", given.listen));
  if (!given.tracker.address.empty()) {
    ASSIGN_OR_RETURN(options.jobs.credentials, CredentialsFor("--tracker", given.tracker));
    RETURN_IF_ERROR(CheckTrackerElsewhere(given));
  }
  RETURN_IF_ERROR(CheckServe(given));
  RETURN_IF_ERROR(ApplyQuotas(given.quotas, options.own_tracker));
  options.listen = given.listen.address;
  options.tracker = given.tracker.address;
  options.state = given.state;
  return options;
}

// A service until it is asked to stop; of a history that services share, in turns: one that stands by, one that acts.
class Serving {
 public:
  Serving(const ServeOptions& given, CoordinatorOptions options) : given_(given), options_(std::move(options)) {}

  absl::Status Run() {
    if (!::diapason::IsPostgresUri(given_.history)) return Act(nullptr);
    self_check_ = std::make_unique<SelfCheck>("", options_.credentials.tls);
    if (options_.state.empty()) options_.state = StatePath(given_.history, ".tracker");
    while (true) {
      ASSIGN_OR_RETURN(const std::unique_ptr<ServiceLease> lease, StandBy());
      if (lease == nullptr) return absl::OkStatus();
      options_.jobs.fence = lease->fence();
      if (given_.tracker.address.empty()) ForgetOldState(options_.state, lease->epoch());
      const absl::Status acted = Act(lease.get());
      const absl::Status holds = lease->Holds();
      if (holds.ok() || stops()) return acted;
      LogEvent(LogLevel::kError, "lease_lost", {{"why", std::string(holds.message())}});
      stood_by_ = true;
    }
  }

 private:
  absl::StatusOr<std::unique_ptr<ServiceLease>> StandBy();
  absl::StatusOr<bool> TryTake(std::unique_ptr<ServiceLease>& lease);
  void NoteHolder(const std::string& holder);
  WorkersPurpose PurposeOf(const CoordinatorServer& server) const;
  // Until it is to stop, or has lost the lease (null: there is none).
  absl::Status Act(ServiceLease* lease);
  bool stops() const { return given_.hooks.stop != nullptr && *given_.hooks.stop; }

  const ServeOptions& given_;
  CoordinatorOptions options_;
  std::unique_ptr<SelfCheck> self_check_;
  bool stood_by_ = false;  // a database that is away is waited for
  std::string holder_;     // that was logged last
  std::string away_;       // why the database is away, likewise
};

// Null when it is to stop.
absl::StatusOr<std::unique_ptr<ServiceLease>> Serving::StandBy() {
  std::unique_ptr<ServiceLease> lease;
  holder_.clear();
  while (!stops()) {
    ASSIGN_OR_RETURN(const bool taken, TryTake(lease));
    if (taken) return lease;
    stood_by_ = true;
    const auto look = std::chrono::steady_clock::now() + kLookAtLease;
    WaitForStop(given_.hooks, [&] { return std::chrono::steady_clock::now() >= look; });
  }
  return nullptr;
}

absl::StatusOr<bool> Serving::TryTake(std::unique_ptr<ServiceLease>& lease) {
  std::string holder;
  const auto attempt = [&]() -> absl::StatusOr<bool> {
    if (lease == nullptr) {
      const double seconds = given_.lease_seconds > 0 ? given_.lease_seconds : kLeaseSeconds;
      ASSIGN_OR_RETURN(
          lease, ServiceLease::Open(given_.history, std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000))));
    }
    return lease->Take(AddressForOthers(given_.listen.address), holder);
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
  if (given_.on_standby) given_.on_standby(holder);
  LogEvent(LogLevel::kInfo, "standby", {{"active", holder}});
}

WorkersPurpose Serving::PurposeOf(const CoordinatorServer& server) const {
  const std::string& elsewhere = given_.tracker.address;
  WorkersPurpose purpose;
  purpose.tracker = elsewhere.empty() ? AddressForOthers(server.address()) : elsewhere;
  purpose.status = server.tracker();
  purpose.credentials = options_.jobs.credentials;
  purpose.owner = OwnerOfHistory(given_.history);
  return purpose;
}

absl::Status Serving::Act(ServiceLease* lease) {
  ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server, CoordinatorServer::Start(options_));
  if (lease != nullptr) {
    lease->SetAddress(AddressForOthers(server->address()));
    LogEvent(LogLevel::kInfo, "lease_taken", {{"address", server->address()}});
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<WorkerPool> pool, StartWorkers(given_.launch, PurposeOf(*server)));
  ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> metrics,
                   StartMetrics(MetricsOf(given_.metrics, given_.listen), [&server] { return server->Metrics(); }));
  if (self_check_ == nullptr) {
    self_check_ = std::make_unique<SelfCheck>(server->address(), options_.credentials.tls);
  } else {
    self_check_->Listens(server->address());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<PageServer> page, StartPage(given_, options_.jobs.credentials, *server));
  if (given_.on_listen) given_.on_listen(server->address(), page == nullptr ? "" : page->url());
  WaitForStop(given_.hooks, [&] { return lease != nullptr && !lease->Holds().ok(); });
  if (stops()) {
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

}  // namespace

absl::Status Serve(const ServeOptions& options) {
  ASSIGN_OR_RETURN(CoordinatorOptions coordinator, CoordinatorOptionsOf(options));
  return Serving(options, std::move(coordinator)).Run();
}

}  // namespace diapason::api
