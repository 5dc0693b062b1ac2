// Workers as a job array of Slurm, through sbatch, squeue and scancel.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "service/command.h"
#include "service/launcher.h"
#include "service/secret_folder.h"

namespace diapason {
namespace {

// Of those that squeue still lists, the ones that will not measure any more.
bool Ends(const std::string& state) {
  static const std::set<std::string> ending = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "COMPLETING",    "DEADLINE",
                                               "FAILED",    "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "TIMEOUT"};
  return ending.contains(state);
}

class SlurmLauncher final : public Launcher {
 public:
  explicit SlurmLauncher(LaunchOptions options)
      : options_(std::move(options)),
        name_("diapason-" + options_.label),
        secrets_(options_.secrets_base, options_.label) {}

  absl::Status Check() override {
    RETURN_IF_ERROR(CheckCommands("slurm", {"sbatch", "squeue", "scancel"}));
    return options_.secrets.empty() ? absl::OkStatus() : secrets_.Check();
  }
  absl::Status Start(int count) override {
    RETURN_IF_ERROR(secrets_.Write(options_.secrets));
    // exec: Slurm's SIGTERM reaches the worker itself, which then drains.
    std::string script = "exec " + ShellWord(options_.program);
    for (const std::string& arg : CommandWithSecrets(options_, secrets_.path()))
      absl::StrAppend(&script, " ", ShellWord(arg));
    script += " --name \"slurm-$SLURM_JOB_ID\"";
    std::vector<std::string> args = {"sbatch", "--parsable", "--job-name", name_, "--array", absl::StrCat("1-", count)};
    args.insert(args.end(), options_.slurm_args.begin(), options_.slurm_args.end());
    args.insert(args.end(), {"--wrap", script});
    return RunCommand(args).status();
  }

  absl::StatusOr<std::vector<std::string>> List() override {
    ASSIGN_OR_RETURN(const std::string text,
                     RunCommand({"squeue", "--noheader", "--array", "--name", name_, "--format", "%i %T"}));
    std::vector<std::string> ids;
    for (const std::string& line :
         static_cast<std::vector<std::string>>(absl::StrSplit(text, '\n', absl::SkipWhitespace()))) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
      if (words.size() == 2 && !Ends(words[1])) ids.push_back(words[0]);
    }
    return ids;
  }

  absl::Status Stop(const std::vector<std::string>& ids) override {
    if (ids.empty()) return absl::OkStatus();
    std::vector<std::string> args = {"scancel", "--quiet"};
    args.insert(args.end(), ids.begin(), ids.end());
    return RunCommand(args).status();
  }

  absl::Status Release() override { return secrets_.Remove(); }

 private:
  const LaunchOptions options_;
  const std::string name_;
  const SecretFolder secrets_;
};

}  // namespace

std::unique_ptr<Launcher> MakeSlurmLauncher(LaunchOptions options) {
  return std::make_unique<SlurmLauncher>(std::move(options));
}

}  // namespace diapason
