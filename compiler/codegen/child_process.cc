#include "compiler/codegen/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "compiler/tensor/check.h"

extern char** environ;

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

void SleepMicroseconds(int64_t microseconds) {
  timespec time{static_cast<time_t>(microseconds / 1000000), static_cast<long>(microseconds % 1000000 * 1000)};
  nanosleep(&time, nullptr);
}

// What posix_spawn needs: input from /dev/null, output to a file, a process group of its own with default signals.
class SpawnSettings {
 public:
  explicit SpawnSettings(const std::string& output_path) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, 1, output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions_, 1, 2);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3);  // databases and sockets of ours are none of its business
#endif
    posix_spawnattr_init(&attributes_);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv) {
    std::vector<char*> pointers;
    for (const std::string& arg : argv) pointers.push_back(const_cast<char*>(arg.c_str()));
    pointers.push_back(nullptr);
    pid_t pid = 0;
    const int error = posix_spawnp(&pid, pointers[0], &actions_, &attributes_, pointers.data(), environ);
    if (error == 0) return pid;
    const std::string reason = argv[0] + ": " + std::strerror(error);
    if (error == ENOENT || error == EACCES || error == ENOTDIR) return absl::NotFoundError(reason);
    return absl::UnavailableError("cannot start " + reason);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

int ExitCodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

// Kills what is left of the group and reaps its leader, which holds the group's number until then.
int KillAndReap(pid_t pid) {
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return ExitCodeOf(status);
}

// Waits for the process; past the deadline kills its group. A compiler takes 50 ms or more, so looking every 1 ms costs
// nothing that shows, and needs no signal handler and no thread.
absl::StatusOr<int> WaitOrKill(pid_t pid, double timeout_seconds) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_seconds);
  for (;;) {
    siginfo_t info{};
    const int error = waitid(P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT);
    if (error == 0 && info.si_pid == pid) return KillAndReap(pid);
    if (error != 0 && errno != EINTR) return absl::InternalError(std::string("waitid: ") + std::strerror(errno));
    if (Clock::now() >= deadline) break;
    SleepMicroseconds(1000);
  }
  KillAndReap(pid);
  return absl::DeadlineExceededError("killed after " + std::to_string(timeout_seconds) + " seconds");
}

}  // namespace

absl::StatusOr<ProcessResult> RunProcess(const std::vector<std::string>& argv, const std::string& output_path,
                                         double timeout_seconds) {
  DIAPASON_CHECK(!argv.empty());
  ASSIGN_OR_RETURN(const pid_t pid, SpawnSettings(output_path).Spawn(argv));
  ASSIGN_OR_RETURN(const int exit_code, WaitOrKill(pid, timeout_seconds));
  ASSIGN_OR_RETURN(std::string output, ReadFile(output_path, size_t{1} << 20));
  return ProcessResult{exit_code, std::move(output)};
}

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create() {
  const char* set = std::getenv("TMPDIR");
  const std::string base = set != nullptr && *set != '\0' ? set : "/tmp";
  std::string path = base + "/diapason-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return absl::UnavailableError("cannot make a folder in " + base + ": " + std::strerror(errno) +
                               "; set TMPDIR to a folder that can be written to");
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

absl::Status WriteFile(const std::string& path, const std::string& contents) {
  FILE* file = std::fopen(path.c_str(), "wbe");
  const bool written = file != nullptr && std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (written && closed) return absl::OkStatus();
  return absl::UnavailableError("cannot write " + path + ": " + std::strerror(errno) +
                                "; free space there, or set TMPDIR to a folder with space");
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) return absl::UnavailableError("cannot read " + path + ": " + std::strerror(errno));
  std::string contents;
  char chunk[1 << 16];
  size_t got;
  while (contents.size() < limit && (got = std::fread(chunk, 1, sizeof chunk, file.get())) > 0)
    contents.append(chunk, std::min(got, limit - contents.size()));
  if (std::ferror(file.get()) != 0) return absl::UnavailableError("cannot read " + path + ": " + std::strerror(errno));
  return contents;
}

}  // namespace diapason
