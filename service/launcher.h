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
  // What this host can tell before anything is asked for: NotFound names a program that is not here, and credentials
  // that could not be kept are the errors of SecretFolder::Check. Nothing is left behind.
  virtual absl::Status Check() = 0;
  // Asks for so many workers more; they come when the engine has a place for them.
  virtual absl::Status Start(int count) = 0;
  // Ids of those with the label that wait for a place or run; not of those that were asked to end.
  virtual absl::StatusOr<std::vector<std::string>> List() = 0;
  // Ends them: they give back what they hold. Unknown ids are ignored.
  virtual absl::Status Stop(const std::vector<std::string>& ids) = 0;
  // Removes the credentials that were handed to workers, also those that an earlier coordinator left. To be called when
  // no worker is wanted any more.
  virtual absl::Status Release() = 0;
};

// A credential of workers. They get it as a file, whose path they find behind a flag: its text is in no argument,
// environment, script or log.
struct LaunchSecret {
  std::string flag;  // "--token-file"
  std::string file;  // name of the file, letters and '.'
  std::string text;
};

struct LaunchOptions {
  std::string engine;  // "local", "slurm", "kubernetes"
  // What a worker is started with, without its name and its secrets: {"worker", "--tracker", ...}.
  std::vector<std::string> command;
  std::vector<LaunchSecret> secrets;
  // local and slurm: where a folder "diapason-LABEL" for the secrets is made (service/secret_folder.h), which jobs of
  // slurm see too. Empty: this process' folder with slurm, that of temporary files with local.
  std::string secrets_base;
  std::string label;                    // letters, digits and '-'
  std::string program;                  // path of diapason where the workers run; empty: of this process
  std::vector<std::string> slurm_args;  // for sbatch: {"-p", "gpu"}
  // Text of a manifest of a pod, with {{name}}, {{label}} and {{args}} (a JSON list) in the places where they belong,
  // and with {{secret}} as the name of the secret that is mounted at /etc/diapason.
  std::string kube_template;
};

// InvalidArgument for an engine that there is not, or a template without its places.
absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(LaunchOptions options);

// Where pods have the secret's files.
inline constexpr char kPodSecrets[] = "/etc/diapason";

// The worker's command with the secrets as files of `folder`.
std::vector<std::string> CommandWithSecrets(const LaunchOptions& options, const std::string& folder);

// For launchers: NotFound names the first of the engine's commands that this host does not have.
absl::Status CheckCommands(const std::string& engine, const std::vector<std::string>& programs);

// For MakeLauncher.
std::unique_ptr<Launcher> MakeLocalLauncher(LaunchOptions options);
std::unique_ptr<Launcher> MakeSlurmLauncher(LaunchOptions options);
std::unique_ptr<Launcher> MakeKubernetesLauncher(LaunchOptions options);

}  // namespace diapason
