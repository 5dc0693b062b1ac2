// Workers as processes of this host, which end with us.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/environment.h"
#include "base/owned_fd.h"
#include "base/process.h"
#include "service/launcher.h"
#include "service/secret_folder.h"

namespace diapason {
namespace {

constexpr std::chrono::seconds kGrace{10};

class LocalLauncher final : public Launcher {
 public:
  explicit LocalLauncher(LaunchOptions options)
      : options_(std::move(options)), secrets_(options_.secrets_base, options_.label) {}
  ~LocalLauncher() override { EndAll(); }

  absl::Status Check() override {
    if (access(options_.program.c_str(), X_OK) != 0) {
      return absl::NotFoundError(absl::StrCat("the workers' program '", options_.program, "' cannot be run (",
                                              std::strerror(errno), "); name another with --worker-program"));
    }
    return options_.secrets.empty() ? absl::OkStatus() : secrets_.Check();
  }
  absl::Status Start(int count) override {
    RETURN_IF_ERROR(secrets_.Write(options_.secrets));
    for (int i = 0; i < count; ++i) RETURN_IF_ERROR(StartOne());
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<std::string>> List() override {
    Bury();
    std::vector<std::string> ids;
    for (pid_t pid : pids_)
      if (!asked_.contains(pid)) ids.push_back(absl::StrCat(pid));
    return ids;
  }
  absl::Status Stop(const std::vector<std::string>& ids) override {
    for (const std::string& id : ids) {
      pid_t pid = 0;
      if (absl::SimpleAtoi(id, &pid) && std::find(pids_.begin(), pids_.end(), pid) != pids_.end()) Ask(pid);
    }
    return absl::OkStatus();
  }
  absl::Status Release() override {
    EndAll();  // one that has just been started would miss its files, and say so
    return secrets_.Remove();
  }

 private:
  void EndAll() {
    for (pid_t pid : pids_) Ask(pid);
    const auto until = std::chrono::steady_clock::now() + kGrace;
    while (!pids_.empty()) {
      if (std::chrono::steady_clock::now() > until)
        for (pid_t pid : pids_) kill(pid, SIGKILL);
      Bury();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  // Once: a second SIGTERM ends a worker before it has given back what it holds.
  void Ask(pid_t pid) {
    if (asked_.insert(pid).second) kill(pid, SIGTERM);
  }
  absl::Status StartOne() {
    std::vector<std::string> args = {"diapason"};
    for (std::string& arg : CommandWithSecrets(options_, secrets_.path())) args.push_back(std::move(arg));
    args.insert(args.end(), {"--name", absl::StrCat("local-", options_.label, "-", ++number_)});
    const OwnedFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
    SpawnOptions spawn;
    spawn.args = std::move(args);
    spawn.file = options_.program;
    spawn.environment = WholeEnvironment();
    spawn.descriptors = {{null.fd, 1}};
    spawn.death_signal = SIGTERM;  // it gives back what it holds
    absl::StatusOr<pid_t> pid = Spawn(spawn);
    if (!pid.ok()) return absl::UnavailableError(absl::StrCat("cannot start a worker (", pid.status().message(), ")"));
    pids_.push_back(*pid);
    return absl::OkStatus();
  }
  void Bury() {
    std::erase_if(pids_, [this](pid_t pid) {
      if (waitpid(pid, nullptr, WNOHANG) == 0) return false;
      asked_.erase(pid);
      return true;
    });
  }

  const LaunchOptions options_;
  const SecretFolder secrets_;
  std::vector<pid_t> pids_;
  std::set<pid_t> asked_;  // to end
  int number_ = 0;
};

}  // namespace

std::unique_ptr<Launcher> MakeLocalLauncher(LaunchOptions options) {
  return std::make_unique<LocalLauncher>(std::move(options));
}

}  // namespace diapason
