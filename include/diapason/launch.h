// Workers that a call starts through the engine of a cluster, and ends with it (docs/fleet.md). See model.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace diapason::api {

struct LaunchRequest {
  // "local" (processes of this host), "slurm" (sbatch) or "kubernetes" (kubectl); empty: none, and the other members
  // are ignored.
  std::string engine;
  // Number of workers: at the start (0: as min_workers), at most while the queue is long (0: as `workers`), and at
  // least while it is empty (below 0: as `workers`).
  int64_t workers = 0, max_workers = 0, min_workers = -1;
  double shrink_after_seconds = 60;  // without measurements, before the number shrinks to min_workers
  int64_t max_replaced = 32;         // lost workers to replace
  // Flags of `diapason worker`, all but its tracker and name: {"--devices", "cuda:*"}.
  std::vector<std::string> worker_args;
  // Path of the program diapason where the workers run; empty: that of this host.
  std::string worker_program;
  // Files with what workers present to the tracker. They are read here, and handed to workers as files.
  std::string worker_token_file, worker_tls_cert, worker_tls_key, worker_tls_ca;
  // Folder for these files; with slurm, one that the nodes can see. Empty: the current folder, or with local the folder
  // of temporary files. Not of kubernetes, which keeps a secret.
  std::string worker_secrets;
  std::vector<std::string> slurm_args;  // for sbatch: {"-p", "gpu"}
  std::string kube_template;            // file with the manifest of a worker's pod

  bool given() const { return !engine.empty(); }
};

// What can be checked before a worker is asked for; Tune and Serve check it first. InvalidArgument names the option
// that does not fit, or is missing; NotFound: a program of the engine is not on this host, or the workers' program or
// manifest is not there. Other errors: of the files with credentials. OK for a request without an engine.
absl::Status CheckOptions(const LaunchRequest& request);

// Workers of a job of a service (Service::Launch). The next ones for the same job find again what a killed process left
// behind.
class LaunchedWorkers {
 public:
  // Ends them: they give back what they hold. Removes the credentials that were handed to them.
  ~LaunchedWorkers();
  LaunchedWorkers(const LaunchedWorkers&) = delete;
  LaunchedWorkers& operator=(const LaunchedWorkers&) = delete;

  // OK while there are workers, or may be. Unavailable: all are lost, no more are replaced, and nobody else measures.
  // Safe from any thread.
  absl::Status status() const;

 private:
  friend class Service;
  class Impl;
  explicit LaunchedWorkers(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace diapason::api
