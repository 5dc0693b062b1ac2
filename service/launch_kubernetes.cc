// Workers as pods of Kubernetes, through kubectl.
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "compiler/tensor/check.h"
#include "service/command.h"
#include "service/launcher.h"

namespace diapason {
namespace {

class KubernetesLauncher final : public Launcher {
 public:
  explicit KubernetesLauncher(LaunchOptions options) : options_(std::move(options)) {}

  absl::Status Start(int count) override {
    std::string manifests;
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat("diapason-", options_.label, "-", NewSuffix());
      nlohmann::json args = options_.command;
      args.push_back("--name");
      args.push_back(name);
      absl::StrAppend(&manifests, "---\n",
                      absl::StrReplaceAll(options_.kube_template, {{"{{name}}", name},
                                                                   {"{{label}}", options_.label},
                                                                   {"{{args}}", args.dump()}}),
                      "\n");
    }
    return RunCommand({"kubectl", "apply", "-f", "-"}, manifests).status();
  }

  absl::StatusOr<std::vector<std::string>> List() override {
    ASSIGN_OR_RETURN(const std::string text,
                     RunCommand({"kubectl", "get", "pods", "-l", "diapason-fleet=" + options_.label, "--no-headers", "-o",
                                 "custom-columns=N:.metadata.name,P:.status.phase,D:.metadata.deletionTimestamp"}));
    std::vector<std::string> ids;
    for (const std::string& line : static_cast<std::vector<std::string>>(absl::StrSplit(text, '\n', absl::SkipWhitespace()))) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipWhitespace());
      const bool lives = words.size() == 3 && words[1] != "Succeeded" && words[1] != "Failed" && words[2] == "<none>";
      if (lives) ids.push_back(words[0]);
    }
    return ids;
  }

  absl::Status Stop(const std::vector<std::string>& ids) override {
    if (ids.empty()) return absl::OkStatus();
    std::vector<std::string> args = {"kubectl", "delete", "pod", "--ignore-not-found", "--wait=false"};
    args.insert(args.end(), ids.begin(), ids.end());
    return RunCommand(args).status();
  }

 private:
  // A pod that has ended keeps its name until it is deleted: each gets one of its own.
  std::string NewSuffix() {
    std::string suffix;
    for (int i = 0; i < 8; ++i) suffix += "0123456789abcdefghijklmnopqrstuvwxyz"[random_() % 36];
    return suffix;
  }

  const LaunchOptions options_;
  std::random_device random_;
};

}  // namespace

std::unique_ptr<Launcher> MakeKubernetesLauncher(LaunchOptions options) {
  return std::make_unique<KubernetesLauncher>(std::move(options));
}

}  // namespace diapason
