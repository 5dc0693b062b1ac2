#include "service/launcher.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/environment.h"

namespace diapason {

std::vector<std::string> CommandWithSecrets(const LaunchOptions& options, const std::string& folder) {
  std::vector<std::string> command = options.command;
  for (const LaunchSecret& secret : options.secrets) {
    command.push_back(secret.flag);
    command.push_back(absl::StrCat(folder, "/", secret.file));
  }
  return command;
}

absl::Status CheckCommands(const std::string& engine, const std::vector<std::string>& programs) {
  for (const std::string& program : programs) {
    if (!FindOnPath(program, "/bin:/usr/bin").empty()) continue;  // as execvp looks for it
    return absl::NotFoundError(absl::StrCat("--launch ", engine, " needs the program '", program,
                                            "', which is not on this host; start the command on one that has it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(LaunchOptions options) {
  if (options.program.empty()) {
    std::error_code ignored;
    options.program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  }
  if (options.secrets_base.empty()) {
    std::error_code ignored;
    options.secrets_base = options.engine == "local" ? std::filesystem::temp_directory_path(ignored)
                                                     : std::filesystem::current_path(ignored);
  }
  if (options.engine == "local") return MakeLocalLauncher(std::move(options));
  if (options.engine == "slurm") return MakeSlurmLauncher(std::move(options));
  if (options.engine != "kubernetes") {
    return absl::InvalidArgumentError(
        absl::StrCat("--launch ", options.engine, " is not understood; give local, slurm or kubernetes"));
  }
  std::vector<const char*> places = {"{{name}}", "{{label}}", "{{args}}"};
  if (!options.secrets.empty()) places.insert(places.end(), {"{{secret}}", kPodSecrets});
  for (const char* place : places) {
    if (options.kube_template.find(place) == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("the manifest of --kube-template has no ", place,
                                                     ": start from deploy/kubernetes/worker-pod.yaml"));
    }
  }
  return MakeKubernetesLauncher(std::move(options));
}

}  // namespace diapason
