// Workers as pods of Kubernetes, through kubectl.
#include <random>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/json.h"
#include "service/command.h"
#include "service/launcher.h"

namespace diapason {
namespace {

// What a template's pods mount when the command has no credentials for them.
constexpr char kUsersSecret[] = "diapason-worker";

class KubernetesLauncher final : public Launcher {
 public:
  explicit KubernetesLauncher(LaunchOptions options)
      : options_(std::move(options)),
        secret_(options_.secrets.empty() ? kUsersSecret : absl::StrCat("diapason-", options_.label)) {}

  absl::Status Check() override { return CheckCommands("kubernetes", {"kubectl"}); }
  absl::Status Start(int count) override {
    RETURN_IF_ERROR(HandOverSecrets());
    std::string manifests;
    for (int i = 0; i < count; ++i) {
      const std::string name = absl::StrCat("diapason-", options_.label, "-", NewSuffix());
      Json args = CommandWithSecrets(options_, kPodSecrets);
      args.push_back("--name");
      args.push_back(name);
      absl::StrAppend(&manifests, "---\n",
                      absl::StrReplaceAll(options_.kube_template, {{"{{name}}", name},
                                                                   {"{{label}}", options_.label},
                                                                   {"{{secret}}", secret_},
                                                                   {"{{args}}", JsonText(args)}}),
                      "\n");
    }
    return RunCommand({"kubectl", "apply", "-f", "-"}, manifests).status();
  }

  absl::StatusOr<std::vector<std::string>> List() override {
    ASSIGN_OR_RETURN(
        const std::string text,
        RunCommand({"kubectl", "get", "pods", "-l", "diapason-fleet=" + options_.label, "--no-headers", "-o",
                    "custom-columns=N:.metadata.name,P:.status.phase,D:.metadata.deletionTimestamp"}));
    std::vector<std::string> ids;
    for (const std::string& line :
         static_cast<std::vector<std::string>>(absl::StrSplit(text, '\n', absl::SkipWhitespace()))) {
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

  absl::Status Release() override {
    const absl::Status removed =
        RunCommand({"kubectl", "delete", "secret", "--ignore-not-found", absl::StrCat("diapason-", options_.label)})
            .status();
    // Without any of ours there may be one that an earlier command left, and no right to look.
    return options_.secrets.empty() ? absl::OkStatus() : removed;
  }

 private:
  // On kubectl's stdin. Again with each start: the same is no change for the cluster.
  absl::Status HandOverSecrets() {
    if (options_.secrets.empty()) return absl::OkStatus();
    Json manifest = {{"apiVersion", "v1"}, {"kind", "Secret"}, {"type", "Opaque"}};
    manifest["metadata"] = {{"name", secret_},
                            {"labels", {{"app", "diapason-worker"}, {"diapason-fleet", options_.label}}}};
    for (const LaunchSecret& secret : options_.secrets) manifest["data"][secret.file] = absl::Base64Escape(secret.text);
    return RunCommand({"kubectl", "apply", "-f", "-"}, JsonText(manifest)).status();
  }
  // A pod that has ended keeps its name until it is deleted: each gets one of its own.
  std::string NewSuffix() {
    std::string suffix;
    for (int i = 0; i < 8; ++i) suffix += "0123456789abcdefghijklmnopqrstuvwxyz"[random_() % 36];
    return suffix;
  }

  const LaunchOptions options_;
  const std::string secret_;  // that pods mount
  std::random_device random_;
};

}  // namespace

std::unique_ptr<Launcher> MakeKubernetesLauncher(LaunchOptions options) {
  return std::make_unique<KubernetesLauncher>(std::move(options));
}

}  // namespace diapason
