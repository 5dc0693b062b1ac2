#include "service/launcher.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace diapason {

absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(LaunchOptions options) {
  if (options.program.empty()) {
    std::error_code ignored;
    options.program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  }
  if (options.engine == "local") return MakeLocalLauncher(std::move(options));
  if (options.engine == "slurm") return MakeSlurmLauncher(std::move(options));
  if (options.engine != "kubernetes") {
    return absl::InvalidArgumentError(
        absl::StrCat("--launch ", options.engine, " is not understood; give local, slurm or kubernetes"));
  }
  for (const char* place : {"{{name}}", "{{label}}", "{{args}}"}) {
    if (options.kube_template.find(place) == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the manifest of --kube-template has no ", place, ": start from deploy/kubernetes/worker-pod.yaml"));
    }
  }
  return MakeKubernetesLauncher(std::move(options));
}

}  // namespace diapason
