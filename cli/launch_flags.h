// --launch and its flags: workers that a command starts through the engine of a cluster (service/launcher.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/service_flags.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace diapason {

class WorkerPool;

struct LaunchFlags {
  std::string engine, slurm_args, kube_template, worker_args, worker_program;
  // What workers show: read here, and handed to them as files.
  std::string worker_token_file, worker_secrets;
  TlsFiles worker_tls;
  int64_t workers = 0, max_workers = 0;  // 0: not given
  int64_t min_workers = -1;              // below 0: not given
  int64_t max_replaced = 32;
  double shrink_after = 60;
  bool given() const { return !engine.empty(); }
};

void AddLaunchFlags(CLI::App* command, LaunchFlags* flags);

// What can be checked before a worker is requested. InvalidArgument names the flag that does not fit, or is missing.
// Other errors: of the workers' certificate and token (worker/rpc/security.h), of Launcher::Check.
absl::Status CheckLaunchFlags(const LaunchFlags& flags);

// What the workers of a command about one file of this host are for.
std::string OwnerOfFile(const std::string& path);

// Why a command stops when its workers are used up. `advice`: what became of its work, and how to resume it.
absl::Status NoWorkerLeft(const LaunchFlags& flags, const std::string& advice);

// What the workers of a command are for.
struct WorkersPurpose {
  std::string tracker;  // that they connect to
  std::string status;   // address that this process asks for the tracker's state, with `credentials`
  std::shared_ptr<const ClientCredentials> credentials;
  // Their label is derived from it, so that the next command with the same one finds them again.
  std::string owner;
  // Called once, on a thread of the pool, when all workers are lost, --max-replaced allows no more, and the tracker
  // knows no other worker. May be null.
  std::function<void()> used_up;
};

// Starts the pool; null without --launch. Errors: those of CheckLaunchFlags about files and this host. REQUIRES:
// CheckLaunchFlags is OK.
absl::StatusOr<std::unique_ptr<WorkerPool>> StartWorkers(const LaunchFlags& flags, WorkersPurpose purpose);

}  // namespace diapason
