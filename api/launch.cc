#include "api/launch.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/import.h"
#include "base/check.h"
#include "base/host_name.h"
#include "base/read_file.h"
#include "db/history_name.h"
#include "service/launcher.h"
#include "service/sha256.h"
#include "worker/fleet_status.h"
#include "worker/rpc/tokens.h"

namespace diapason::api {
namespace {

constexpr size_t kLabelDigits = 10;
constexpr char kThisProcess[] = "/proc/self/exe";  // whose path the launcher looks up: workers run elsewhere

std::string LabelOf(const std::string& owner) {
  Sha256 sum;
  sum.Add(owner.data(), owner.size());
  return sum.Hex().substr(0, kLabelDigits);
}

// The number to begin with: as many as --min-workers and --max-workers where these are not given.
int64_t FirstWorkers(const LaunchRequest& request) {
  if (request.workers > 0) return request.workers;
  return request.min_workers >= 0 ? request.min_workers : request.max_workers;
}
int64_t LeastWorkers(const LaunchRequest& request) {
  return request.min_workers >= 0 ? request.min_workers : FirstWorkers(request);
}
int64_t MostWorkers(const LaunchRequest& request) {
  return request.max_workers > 0 ? request.max_workers : FirstWorkers(request);
}

// True for "--flag" and "--flag=VALUE".
bool NamesFlag(const std::string& arg, const std::string& flag) { return arg == flag || arg.rfind(flag + "=", 0) == 0; }

// What workers are handed, from the files that flags name.
absl::StatusOr<std::vector<LaunchSecret>> ReadSecrets(const LaunchRequest& request) {
  std::vector<LaunchSecret> secrets;
  if (!request.worker_token_file.empty()) {
    ASSIGN_OR_RETURN(const std::string token, LoadToken(request.worker_token_file, "--worker-token-file"));
    secrets.push_back({"--token-file", "worker.token", token + "\n"});
  }
  const TlsFiles tls_files{request.worker_tls_cert, request.worker_tls_key, request.worker_tls_ca};
  if (tls_files.given()) {
    ASSIGN_OR_RETURN(const TlsIdentity tls, LoadTls(tls_files, {.flags = "--worker-tls-", .allow_no_role = true}));
    secrets.push_back({"--tls-cert", "worker.crt", tls.cert});
    secrets.push_back({"--tls-key", "worker.key", tls.key});
    secrets.push_back({"--tls-ca", "ca.crt", tls.ca});
  }
  for (const std::string& arg : request.worker_args) {
    for (const LaunchSecret& secret : secrets) {
      if (!NamesFlag(arg, secret.flag)) continue;
      return absl::InvalidArgumentError(absl::StrCat("--worker-args names ", secret.flag, ", which --worker-",
                                                     secret.flag.substr(2), " gives already; leave one out"));
    }
  }
  return secrets;
}

// All but the tracker of the workers and what they are for.
absl::StatusOr<LaunchOptions> LaunchOptionsOf(const LaunchRequest& request) {
  LaunchOptions options;
  options.engine = request.engine;
  options.program = request.worker_program;
  if (options.program.empty() && Program() != kThisProcess) options.program = Program();
  options.slurm_args = request.slurm_args;
  ASSIGN_OR_RETURN(options.secrets, ReadSecrets(request));
  options.secrets_base = request.worker_secrets;
  if (request.kube_template.empty()) return options;
  ASSIGN_OR_RETURN(options.kube_template, ReadNamedFile("--kube-template", request.kube_template));
  return options;
}

}  // namespace

std::string OwnerOfHistory(const std::string& history) {
  if (IsPostgresUri(history)) return absl::StrCat(HostName(), ":", HistoryName(history));
  std::error_code ignored;
  return absl::StrCat(HostName(), ":", std::filesystem::absolute(history, ignored).string());
}

absl::Status CheckOptions(const LaunchRequest& request) {
  if (!request.given()) return absl::OkStatus();
  if (request.workers < 1 && request.max_workers < 1)
    return absl::InvalidArgumentError("--launch needs the number of workers; give --workers");
  if (request.workers > 0 && request.min_workers > request.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min-workers ", request.min_workers, " is more than --workers ", request.workers));
  }
  if (FirstWorkers(request) > MostWorkers(request)) {
    return absl::InvalidArgumentError(absl::StrCat(request.workers > 0 ? "--workers " : "--min-workers ",
                                                   FirstWorkers(request), " is more than --max-workers ",
                                                   request.max_workers));
  }
  if (!request.slurm_args.empty() && request.engine != "slurm")
    return absl::InvalidArgumentError("--slurm-args goes with --launch slurm only");
  if (request.kube_template.empty() == (request.engine == "kubernetes"))
    return absl::InvalidArgumentError("--launch kubernetes and --kube-template go together: give both or neither");
  const std::vector<std::string>& args = request.worker_args;
  const auto names_devices = [](const std::string& arg) { return NamesFlag(arg, "--devices"); };
  if (std::none_of(args.begin(), args.end(), names_devices)) {
    return absl::InvalidArgumentError(
        "--worker-args is to name the devices to measure on, for example --worker-args \"--devices cuda:*\"");
  }
  if (!request.worker_secrets.empty() && request.engine == "kubernetes")
    return absl::InvalidArgumentError("--worker-secrets is for local and slurm; kubernetes keeps a secret of its own");
  ASSIGN_OR_RETURN(const LaunchOptions options, LaunchOptionsOf(request));
  ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, MakeLauncher(options));
  return launcher->Check();
}

absl::StatusOr<std::unique_ptr<WorkerPool>> StartWorkers(const LaunchRequest& request, WorkersPurpose purpose) {
  if (!request.given()) return nullptr;
  ASSIGN_OR_RETURN(LaunchOptions launch, LaunchOptionsOf(request));
  launch.label = LabelOf(purpose.owner);
  launch.command = {"worker", "--tracker", purpose.tracker};
  for (const std::string& word : request.worker_args) launch.command.push_back(word);
  ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, MakeLauncher(launch));
  RETURN_IF_ERROR(launcher->Check());  // with the label
  WorkerPoolOptions pool;
  pool.first_workers = static_cast<int>(FirstWorkers(request));
  pool.min_workers = static_cast<int>(LeastWorkers(request));
  pool.max_workers = static_cast<int>(MostWorkers(request));
  pool.max_replaced = static_cast<int>(request.max_replaced);
  pool.shrink_after_seconds = request.shrink_after_seconds;
  pool.demand = [purpose]() -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const ::diapason::FleetStatus status, AskFleetStatus(purpose.status, 1, purpose.credentials));
    int64_t demand = 0;
    for (const ::diapason::FleetStatus::Queue& queue : status.queues) demand += queue.pending + queue.leased;
    return demand;
  };
  pool.others = [purpose]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const ::diapason::FleetStatus status, AskFleetStatus(purpose.status, 1, purpose.credentials));
    return !status.devices.empty();
  };
  pool.used_up = std::move(purpose.used_up);
  return std::make_unique<WorkerPool>([launch] { return MakeLauncher(launch).value(); }, std::move(pool));
}

absl::Status NoWorkerLeft(const LaunchRequest& request) {
  return absl::UnavailableError(absl::StrCat("no worker is left: all that were launched are lost, and --max-replaced ",
                                             request.max_replaced,
                                             " allows no more; see in their output what ends them"));
}

LaunchedWorkers::LaunchedWorkers(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LaunchedWorkers::~LaunchedWorkers() = default;

absl::Status LaunchedWorkers::status() const {
  return impl_->used_up ? NoWorkerLeft(impl_->request) : absl::OkStatus();
}

}  // namespace diapason::api
