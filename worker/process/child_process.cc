#include "worker/process/child_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>

#include "absl/base/config.h"
#include "base/environment.h"
#include "base/process.h"

namespace diapason {
namespace {

// Orphans of our children come to us and not to a first process that may not bury them (containers).
void BecomeSubreaper() {
  static std::once_flag once;
  std::call_once(once, [] { prctl(PR_SET_CHILD_SUBREAPER, 1); });
}

struct Member {
  pid_t pid;
  bool dead;  // waits to be buried
};

struct ProcessStat {
  char state = 0;
  int session = 0;
  unsigned flags = 0;  // PF_... of the kernel
};

// From /proc/PID/stat, whose fields follow the last ')'. Nothing: there is no such process.
std::optional<ProcessStat> StatOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t end = line.rfind(')');
  ProcessStat stat;
  if (end == std::string::npos ||
      std::sscanf(line.c_str() + end + 1, " %c %*d %*d %d %*d %*d %u", &stat.state, &stat.session, &stat.flags) != 3)
    return std::nullopt;
  return stat;
}

std::vector<Member> SessionMembers(pid_t session) {
  std::vector<Member> members;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return members;
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = static_cast<pid_t>(std::atoi(entry->d_name));
    if (pid <= 0 || pid == session) continue;
    const std::optional<ProcessStat> stat = StatOf(pid);
    if (stat.has_value() && stat->session == session)
      members.push_back({pid, stat->state == 'Z' || stat->state == 'X'});
  }
  closedir(proc);
  return members;
}

// Started by any of its threads. Empty on kernels that do not list them (CONFIG_PROC_CHILDREN).
std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* dir = opendir(tasks.c_str());
  if (dir == nullptr) return children;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    std::ifstream file(tasks + "/" + entry->d_name + "/children");
    for (pid_t child = 0; file >> child;) children.push_back(child);
  }
  closedir(dir);
  return children;
}

bool IsStopped(pid_t pid) {
  const std::optional<ProcessStat> stat = StatOf(pid);
  return stat.has_value() && (stat->state == 'T' || stat->state == 't');
}

// Whether it executes a program of its own; until then it may run in the memory of its parent, which waits (vfork).
// Waits a moment for it.
bool HasExecuted(pid_t pid) {
  constexpr unsigned kNotExecuted = 0x40;  // PF_FORKNOEXEC, include/linux/sched.h
  for (int look = 0; look < 20; ++look) {
    const std::optional<ProcessStat> stat = StatOf(pid);
    if (!stat.has_value() || (stat->flags & kNotExecuted) == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// What a program ended with whose wrapper did so.
int Unwrapped(int status) {
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return code > 128 && code <= 128 + SIGRTMAX ? code - 128 : status;
}

// Returns the members but the leader, so that they can be buried. A member may start another while we look: again until
// none lives. A process stuck in a driver never goes; ten rounds are enough for the others.
std::vector<pid_t> KillSession(pid_t session) {
  std::vector<pid_t> members;
  for (int round = 0; round < 10; ++round) {
    bool found_new = false;
    for (const Member& member : SessionMembers(session)) {
      if (!member.dead) kill(member.pid, SIGKILL);
      if (std::count(members.begin(), members.end(), member.pid) > 0) continue;
      members.push_back(member.pid);
      found_new = found_new || !member.dead;
    }
    kill(-session, SIGKILL);
    if (!found_new) break;
  }
  return members;
}

// File descriptor of the program's file, in a wrapper; closed in the program.
constexpr int kProgramFile = kChildSocket + 1;

std::vector<std::string> ChildEnvironment(const ChildOptions& options) {
  EnvironmentVariables changed = options.environment;
  changed.emplace_back("TMPDIR", options.scratch);
  return CleanEnvironment(changed, options.keep_environment);
}

// A wrapper finds the program by its file and not by its name: /proc/self/exe would be the wrapper, and the name may by
// now be that of a newer version.
std::vector<std::string> Arguments(const ChildOptions& options) {
  if (options.wrapper.empty()) return options.args;
  std::vector<std::string> args = options.wrapper;
  args.push_back("/proc/self/fd/" + std::to_string(kProgramFile));
  args.insert(args.end(), options.args.begin() + 1, options.args.end());
  return args;
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::StatusOr<pid_t> SpawnWithSocket(const ChildOptions& options, const std::string& output, int socket) {
  const bool wrapped = !options.wrapper.empty();
  const FileDescriptor text(open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (text.get() < 0) return absl::UnavailableError("cannot write " + output + ": " + std::strerror(errno));
  const FileDescriptor program(wrapped ? open(options.program.c_str(), O_PATH | O_CLOEXEC) : -1);
  if (wrapped && program.get() < 0) {
    return absl::UnavailableError("cannot start '" + options.program + "': " + std::strerror(errno));
  }
  SpawnOptions spawn;
  spawn.args = Arguments(options);
  spawn.file = wrapped ? "" : options.program;
  spawn.environment = ChildEnvironment(options);
  spawn.descriptors = {{text.get(), 1}, {text.get(), 2}, {socket, kChildSocket}};
  if (wrapped) spawn.descriptors.push_back({program.get(), kProgramFile});
  spawn.session = true;
  return Spawn(spawn);
}

[[noreturn]] void ExitOutOfMemory() {
  constexpr char kText[] = "out of memory\n";
  if (write(2, kText, sizeof(kText) - 1) < 0) _exit(kExitOutOfMemory + 1);
  _exit(kExitOutOfMemory);
}

// What a wrapper found this program by, if it did.
void CloseProgramFile() {
  struct stat file {
  }, program{};
  const bool there = fstat(kProgramFile, &file) == 0 && stat("/proc/self/exe", &program) == 0;
  if (there && file.st_ino == program.st_ino && file.st_dev == program.st_dev) close(kProgramFile);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Spawn(const ChildOptions& options) {
  BecomeSubreaper();
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::UnavailableError(std::string("cannot make a socket pair: ") + std::strerror(errno));
  }
  fcntl(sockets[0], F_SETFL, O_NONBLOCK);
  std::string output = options.scratch + "/output.txt";
  const absl::StatusOr<pid_t> pid = SpawnWithSocket(options, output, sockets[1]);
  close(sockets[1]);
  if (!pid.ok()) {
    close(sockets[0]);
    return absl::UnavailableError(pid.status().message());
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(*pid, sockets[0], output, options));
}

ChildProcess::~ChildProcess() {
  if (!wait_status_.has_value()) {
    Kill();
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!Reap().has_value() && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  for (pid_t orphan : orphans_) {
    for (int i = 0; i < 200 && waitpid(orphan, nullptr, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  close(socket_);
}

void ChildProcess::Send(const google::protobuf::MessageLite& message) {
  unsent_ += EncodeFrame(message);
  Flush();
}

void ChildProcess::Flush() {
  while (has_unsent()) {
    ssize_t n = send(socket_, unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) break;  // the child is gone
    sent_ += static_cast<size_t>(n);
  }
  unsent_.clear();
  sent_ = 0;
}

absl::StatusOr<std::vector<std::string>> ChildProcess::Receive(bool& ended) {
  ended = false;
  char chunk[65536];
  while (true) {
    ssize_t n = recv(socket_, chunk, sizeof(chunk), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
      break;
    }
    decoder_.Append(chunk, static_cast<size_t>(n));
  }
  std::vector<std::string> messages;
  while (true) {
    absl::StatusOr<std::optional<std::string>> next = decoder_.Next();
    if (!next.ok()) return next.status();
    if (!next->has_value()) return messages;
    messages.push_back(*std::move(*next));
  }
}

bool ChildProcess::stopped() const {
  std::vector<pid_t> family = {pid_};
  for (size_t i = 0; i < family.size(); ++i) {
    if (IsStopped(family[i])) return true;
    for (pid_t child : ChildrenOf(family[i])) family.push_back(child);
  }
  return false;
}

// From the top, so that one that is stopped starts no more. But what the child has started and is no program yet:
// stopped there, it would hold the child in vfork, where that cannot obey the signal that tells it of our death
// (base/process.h), and both would outlive us.
void ChildProcess::Pause() {
  if (pauses_++ > 0 || wait_status_.has_value()) return;
  kill(pid_, SIGSTOP);
  paused_ = {pid_};
  for (size_t i = 0; i < paused_.size(); ++i) {
    for (pid_t child : ChildrenOf(paused_[i])) {
      if (i == 0 && !wrapped_ && !HasExecuted(child)) continue;
      kill(child, SIGSTOP);
      paused_.push_back(child);
    }
  }
}

void ChildProcess::Resume() {
  if (--pauses_ > 0 || wait_status_.has_value()) return;
  for (; !paused_.empty(); paused_.pop_back()) kill(paused_.back(), SIGCONT);
}

void ChildProcess::AdoptSession() {
  for (pid_t pid : KillSession(pid_)) {
    if (std::count(orphans_.begin(), orphans_.end(), pid) == 0) orphans_.push_back(pid);
  }
}

void ChildProcess::Kill() {
  if (wait_status_.has_value()) return;
  kill(pid_, SIGKILL);  // before it leads its group, too
  AdoptSession();
}

std::optional<int> ChildProcess::Reap() {
  std::erase_if(orphans_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) > 0; });
  if (wait_status_.has_value()) return wait_status_;
  siginfo_t info{};
  // Looked at first and buried last: as long as it is a zombie, nobody else can have its number.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    wait_status_ = 0;  // somebody else has buried it
    return wait_status_;
  }
  if (info.si_pid == 0) return std::nullopt;
  AdoptSession();
  int status = 0;
  waitpid(pid_, &status, 0);
  wait_status_ = wrapped_ ? Unwrapped(status) : status;
  return wait_status_;
}

std::string ChildProcess::OutputTail(size_t max_bytes) const {
  std::ifstream file(output_, std::ios::binary | std::ios::ate);
  if (!file) return "";
  std::streamoff size = file.tellg();
  std::streamoff start = std::max<std::streamoff>(0, size - static_cast<std::streamoff>(max_bytes));
  file.seekg(start);
  std::string tail(static_cast<size_t>(size - start), '\0');
  file.read(tail.data(), static_cast<std::streamsize>(tail.size()));
  tail.resize(static_cast<size_t>(file.gcount()));
  while (!tail.empty() && (tail.back() == '\n' || tail.back() == ' ')) tail.pop_back();
  return tail;
}

void PrepareChildProcess(int socket) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  fcntl(socket, F_SETFD, FD_CLOEXEC);
  CloseProgramFile();
  std::set_new_handler(ExitOutOfMemory);
}

void LimitMemory(int64_t bytes) {
  if (bytes <= 0) return;
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
  return;  // they reserve terabytes of addresses
#endif
  rlimit limit{static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
  setrlimit(RLIMIT_AS, &limit);
}

void TruncateOutput() {
  struct stat info {};
  if (fstat(2, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 && ftruncate(2, 0) != 0) return;
}

std::string DescribeWaitStatus(int status) {
  if (WIFSIGNALED(status)) {
    int signal = WTERMSIG(status);
    return "died of signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
  }
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

int64_t SystemOutOfMemoryKills() {
  std::ifstream file("/proc/vmstat");
  std::string key;
  int64_t value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return 0;
}

}  // namespace diapason
