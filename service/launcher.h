// Workers on demand, from the engine that a cluster already has: placement, quotas and preemption are its business. One
// file an engine: launch_local.cc, launch_slurm.cc, launch_kubernetes.cc.
//
// What was asked for carries a label, so that a coordinator that was killed finds it again at its next start.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

// One thread at a time. Errors are those of the engine's own commands, which messages name.
class Launcher {
 public:
  virtual ~Launcher() = default;
  // Asks for so many workers more; they come when the engine has a place for them.
  virtual absl::Status Start(int count) = 0;
  // Ids of those with the label that wait for a place or run.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // Ends them: they give back what they hold. Unknown ids are ignored.
  virtual absl::Status Stop(const std::vector<std::string>& ids) = 0;
};

struct LaunchOptions {
  std::string engine;  // "local", "slurm", "kubernetes"
  // What a worker is started with, without its name: {"worker", "--tracker", ...}. Secrets are in files that it names.
  std::vector<std::string> command;
  std::string label;    // letters, digits and '-'
  std::string program;  // path of diapason where the workers run; empty: of this process
  std::vector<std::string> slurm_args;  // for sbatch: {"-p", "gpu"}
  // Text of a manifest of a pod, with {{name}}, {{label}} and {{args}} (a JSON list) in the places where they belong.
  std::string kube_template;
};

// InvalidArgument for an engine that there is not, or a template without its places.
absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(LaunchOptions options);

// For MakeLauncher.
std::unique_ptr<Launcher> MakeLocalLauncher(LaunchOptions options);
std::unique_ptr<Launcher> MakeSlurmLauncher(LaunchOptions options);
std::unique_ptr<Launcher> MakeKubernetesLauncher(LaunchOptions options);

}  // namespace diapason
