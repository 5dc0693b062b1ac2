#include "cli/launch_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/host_name.h"
#include "base/read_file.h"
#include "cli/flags.h"
#include "db/history_name.h"
#include "service/launcher.h"
#include "service/sha256.h"
#include "service/worker_pool.h"
#include "worker/fleet_status.h"
#include "worker/rpc/tokens.h"

namespace diapason {
namespace {

constexpr char kGroup[] = "Launching workers";
constexpr size_t kLabelDigits = 10;

std::vector<std::string> Words(const std::string& text) { return absl::StrSplit(text, ' ', absl::SkipWhitespace()); }

std::string LabelOf(const std::string& owner) {
  Sha256 sum;
  sum.Add(owner.data(), owner.size());
  return sum.Hex().substr(0, kLabelDigits);
}

// The number to begin with: as many as --min-workers and --max-workers where these are not given.
int64_t First(const LaunchFlags& flags) {
  if (flags.workers > 0) return flags.workers;
  return flags.min_workers >= 0 ? flags.min_workers : flags.max_workers;
}
int64_t Least(const LaunchFlags& flags) { return flags.min_workers >= 0 ? flags.min_workers : First(flags); }
int64_t Most(const LaunchFlags& flags) { return flags.max_workers > 0 ? flags.max_workers : First(flags); }

// True for "--flag" and "--flag=VALUE".
bool Names(const std::string& arg, const std::string& flag) { return arg == flag || arg.rfind(flag + "=", 0) == 0; }

// What workers are handed, from the files that flags name.
absl::StatusOr<std::vector<LaunchSecret>> ReadSecrets(const LaunchFlags& flags) {
  std::vector<LaunchSecret> secrets;
  if (!flags.worker_token_file.empty()) {
    ASSIGN_OR_RETURN(const std::string token, LoadToken(flags.worker_token_file, "--worker-token-file"));
    secrets.push_back({"--token-file", "worker.token", token + "\n"});
  }
  if (flags.worker_tls.given()) {
    ASSIGN_OR_RETURN(const TlsIdentity tls,
                     LoadTls(flags.worker_tls, {.flags = "--worker-tls-", .allow_no_role = true}));
    secrets.push_back({"--tls-cert", "worker.crt", tls.cert});
    secrets.push_back({"--tls-key", "worker.key", tls.key});
    secrets.push_back({"--tls-ca", "ca.crt", tls.ca});
  }
  for (const std::string& arg : Words(flags.worker_args)) {
    for (const LaunchSecret& secret : secrets) {
      if (!Names(arg, secret.flag)) continue;
      return absl::InvalidArgumentError(absl::StrCat("--worker-args names ", secret.flag, ", which --worker-",
                                                     secret.flag.substr(2), " gives already; leave one out"));
    }
  }
  return secrets;
}

// All but the tracker of the workers and what they are for.
absl::StatusOr<LaunchOptions> OptionsOf(const LaunchFlags& flags) {
  LaunchOptions options;
  options.engine = flags.engine;
  options.program = flags.worker_program;
  options.slurm_args = Words(flags.slurm_args);
  ASSIGN_OR_RETURN(options.secrets, ReadSecrets(flags));
  options.secrets_base = flags.worker_secrets;
  if (flags.kube_template.empty()) return options;
  ASSIGN_OR_RETURN(options.kube_template, ReadNamedFile("--kube-template", flags.kube_template));
  return options;
}

}  // namespace

std::string OwnerOfFile(const std::string& path) {
  if (IsPostgresUri(path)) return absl::StrCat(HostName(), ":", HistoryName(path));
  std::error_code ignored;
  return absl::StrCat(HostName(), ":", std::filesystem::absolute(path, ignored).string());
}

absl::Status CheckLaunchFlags(const LaunchFlags& flags) {
  if (!flags.given()) return absl::OkStatus();
  if (flags.workers < 1 && flags.max_workers < 1)
    return absl::InvalidArgumentError("--launch needs the number of workers; give --workers");
  if (flags.workers > 0 && flags.min_workers > flags.workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("--min-workers ", flags.min_workers, " is more than --workers ", flags.workers));
  }
  if (First(flags) > Most(flags)) {
    return absl::InvalidArgumentError(absl::StrCat(flags.workers > 0 ? "--workers " : "--min-workers ", First(flags),
                                                   " is more than --max-workers ", flags.max_workers));
  }
  if (!flags.slurm_args.empty() && flags.engine != "slurm")
    return absl::InvalidArgumentError("--slurm-args goes with --launch slurm only");
  if (flags.kube_template.empty() == (flags.engine == "kubernetes"))
    return absl::InvalidArgumentError("--launch kubernetes and --kube-template go together: give both or neither");
  const std::vector<std::string> args = Words(flags.worker_args);
  const auto names_devices = [](const std::string& arg) { return Names(arg, "--devices"); };
  if (std::none_of(args.begin(), args.end(), names_devices)) {
    return absl::InvalidArgumentError(
        "--worker-args is to name the devices to measure on, for example --worker-args \"--devices cuda:*\"");
  }
  if (!flags.worker_secrets.empty() && flags.engine == "kubernetes")
    return absl::InvalidArgumentError("--worker-secrets is for local and slurm; kubernetes keeps a secret of its own");
  ASSIGN_OR_RETURN(const LaunchOptions options, OptionsOf(flags));
  ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, MakeLauncher(options));
  return launcher->Check();
}

void AddLaunchFlags(CLI::App* command, LaunchFlags* flags) {
  command
      ->add_option("--launch", flags->engine,
                   "Start workers: local (processes of this host), slurm (sbatch) or kubernetes (kubectl)")
      ->type_name("ENGINE")
      ->group(kGroup);
  AddWhole(command, "--workers", &flags->workers, {1, 10000}, "Workers at the start (default: --min-workers)")
      ->group(kGroup);
  AddWhole(command, "--max-workers", &flags->max_workers, {1, 10000},
           "Most workers, while the queue is long (default: as --workers)")
      ->group(kGroup);
  AddWhole(command, "--min-workers", &flags->min_workers, {0, 10000},
           "Least workers, while the queue is empty (default: as --workers)")
      ->group(kGroup);
  AddNumber(command, "--shrink-after", &flags->shrink_after, 0,
            "Seconds without measurements after which the number shrinks to --min-workers (default 60)")
      ->group(kGroup);
  AddWhole(command, "--max-replaced", &flags->max_replaced, {0, 1 << 20},
           "Number of lost workers to replace (default 32)")
      ->group(kGroup);
  command
      ->add_option("--worker-args", flags->worker_args,
                   "Flags of the workers, for example \"--devices cuda:* --builders 8\"")
      ->type_name("TEXT")
      ->group(kGroup);
  command
      ->add_option("--worker-program", flags->worker_program,
                   "Path of the program diapason where the workers run (default: that of this program)")
      ->type_name("FILE")
      ->group(kGroup);
  auto file = [&](const std::string& name, std::string* value, const std::string& help) {
    command->add_option(name, *value, help)->type_name("FILE")->group(kGroup);
  };
  file("--worker-token-file", &flags->worker_token_file,
       "File with the workers' token, passed to them as a file of mode 600 or a secret");
  file("--worker-tls-cert", &flags->worker_tls.cert, "Certificate (PEM) of the workers, passed in the same way");
  file("--worker-tls-key", &flags->worker_tls.key, "Private key of the certificate");
  file("--worker-tls-ca", &flags->worker_tls.ca, "Certificate of the authority that signed the tracker's certificate");
  command
      ->add_option("--worker-secrets", flags->worker_secrets,
                   "Folder for these files; with slurm, one that the nodes can see (default: the current folder; with "
                   "local, the folder of temporary files)")
      ->type_name("DIR")
      ->group(kGroup);
  command->add_option("--slurm-args", flags->slurm_args, "For sbatch, for example \"-p gpu --gres=gpu:1\"")
      ->type_name("TEXT")
      ->group(kGroup);
  command->add_option("--kube-template", flags->kube_template, "Manifest of a worker's pod")
      ->type_name("FILE")
      ->group(kGroup);
}

absl::Status NoWorkerLeft(const LaunchFlags& flags, const std::string& advice) {
  return absl::UnavailableError(absl::StrCat("no worker is left: all that were launched are lost, and --max-replaced ",
                                             flags.max_replaced,
                                             " allows no more; see in their output what ends them, ", advice));
}

absl::StatusOr<std::unique_ptr<WorkerPool>> StartWorkers(const LaunchFlags& flags, WorkersPurpose purpose) {
  if (!flags.given()) return nullptr;
  ASSIGN_OR_RETURN(LaunchOptions launch, OptionsOf(flags));
  launch.label = LabelOf(purpose.owner);
  launch.command = {"worker", "--tracker", purpose.tracker};
  for (const std::string& word : Words(flags.worker_args)) launch.command.push_back(word);
  ASSIGN_OR_RETURN(const std::unique_ptr<Launcher> launcher, MakeLauncher(launch));
  RETURN_IF_ERROR(launcher->Check());  // with the label
  WorkerPoolOptions pool;
  pool.first_workers = static_cast<int>(First(flags));
  pool.min_workers = static_cast<int>(Least(flags));
  pool.max_workers = static_cast<int>(Most(flags));
  pool.max_replaced = static_cast<int>(flags.max_replaced);
  pool.shrink_after_seconds = flags.shrink_after;
  pool.demand = [purpose]() -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const FleetStatus status, AskFleetStatus(purpose.status, 1, purpose.credentials));
    int64_t demand = 0;
    for (const FleetStatus::Queue& queue : status.queues) demand += queue.pending + queue.leased;
    return demand;
  };
  pool.others = [purpose]() -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(const FleetStatus status, AskFleetStatus(purpose.status, 1, purpose.credentials));
    return !status.devices.empty();
  };
  pool.used_up = std::move(purpose.used_up);
  return std::make_unique<WorkerPool>([launch] { return MakeLauncher(launch).value(); }, std::move(pool));
}

}  // namespace diapason
