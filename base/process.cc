#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "base/environment.h"

// The thread sanitizer takes every clone() for a fork, which it does not support beside other threads; here the child
// has our memory for a moment and then another program.
#ifdef ABSL_HAVE_THREAD_SANITIZER
extern "C" int __clone(int (*function)(void*), void* stack, int flags, void* argument, ...) noexcept;
#define KERNEL_CLONE __clone
#else
#define KERNEL_CLONE clone
#endif

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

namespace diapason {
namespace {

constexpr size_t kStackBytes = 64 << 10;
constexpr int kSignals = 64;
constexpr uint64_t kAllSignals = ~uint64_t{0};

// What the child needs, made before: it allocates nothing.
struct ChildPlan {
  const char* file;
  char** argv;
  char** environment;
  const SpawnOptions::Descriptor* descriptors;
  size_t descriptor_count;
  pid_t parent;
  bool session;
  int death_signal;
  rlim_t cpu_seconds;
  int error = 0;  // out: why there is no program
};

// Straight to the kernel: the child shares our memory, and neither the C library's records nor those of a sanitizer are
// to change in it.
template <typename... Arguments>
__attribute__((no_sanitize("address", "thread", "undefined"))) long Kernel(long number, Arguments... arguments) {
  return syscall(number, arguments...);
}

__attribute__((no_sanitize("address", "thread", "undefined"))) void CloseOthersAtExec() {
  if (Kernel(SYS_close_range, 3L, static_cast<long>(~0U), static_cast<long>(CLOSE_RANGE_CLOEXEC)) == 0) return;
  for (long fd = 3; fd < 65536; ++fd) Kernel(SYS_fcntl, fd, static_cast<long>(F_SETFD), static_cast<long>(FD_CLOEXEC));
}

__attribute__((no_sanitize("address", "thread", "undefined"))) void SetLimit(int which, rlim_t value) {
  rlimit limit{value, value};
  Kernel(SYS_prlimit64, 0L, static_cast<long>(which), &limit, nullptr);
}

// Runs in the memory of the parent, whose thread waits, and on a stack of its own. Signals are blocked.
__attribute__((no_sanitize("address", "thread", "undefined"))) int RunChild(void* argument) {
  ChildPlan& plan = *static_cast<ChildPlan*>(argument);
  char default_action[32] = {};  // the kernel's struct sigaction, with SIG_DFL
  for (long s = 1; s <= kSignals; ++s) Kernel(SYS_rt_sigaction, s, default_action, nullptr, 8L);
  plan.session ? Kernel(SYS_setsid) : Kernel(SYS_setpgid, 0L, 0L);
  Kernel(SYS_prctl, static_cast<long>(PR_SET_PDEATHSIG), static_cast<long>(plan.death_signal), 0L, 0L, 0L);
  // One that died before is not reported.
  if (Kernel(SYS_getppid) != plan.parent) Kernel(SYS_exit_group, 127L);
  SetLimit(RLIMIT_CORE, 0);
  if (plan.cpu_seconds > 0) SetLimit(RLIMIT_CPU, plan.cpu_seconds);
  CloseOthersAtExec();
  for (size_t i = 0; i < plan.descriptor_count; ++i)
    Kernel(SYS_dup2, static_cast<long>(plan.descriptors[i].ours), static_cast<long>(plan.descriptors[i].its));
  const uint64_t none = 0;
  Kernel(SYS_rt_sigprocmask, static_cast<long>(SIG_SETMASK), &none, nullptr, 8L);
  Kernel(SYS_execve, plan.file, plan.argv, plan.environment);
  plan.error = errno;
  Kernel(SYS_exit_group, 127L);
  return 127;
}

class OwnStack {
 public:
  OwnStack()
      : memory_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ~OwnStack() {
    if (memory_ != MAP_FAILED) munmap(memory_, kStackBytes);
  }
  OwnStack(const OwnStack&) = delete;
  OwnStack& operator=(const OwnStack&) = delete;
  bool ok() const { return memory_ != MAP_FAILED; }
  void* top() const { return static_cast<char*>(memory_) + kStackBytes; }

 private:
  void* const memory_;
};

// Copies of descriptors under numbers that no process is given, so that one can be put in the place of another.
class Copies {
 public:
  absl::Status Add(int ours, int its, int above) {
    const int copy = fcntl(ours, F_DUPFD_CLOEXEC, above);
    if (copy < 0)
      return absl::UnavailableError(absl::StrCat("no more files can be opened (", std::strerror(errno), ")"));
    list_.push_back({copy, its});
    return absl::OkStatus();
  }
  ~Copies() {
    for (const SpawnOptions::Descriptor& d : list_) close(d.ours);
  }
  const std::vector<SpawnOptions::Descriptor>& list() const { return list_; }

 private:
  std::vector<SpawnOptions::Descriptor> list_;
};

absl::Status CopyDescriptors(const SpawnOptions& options, Copies& copies) {
  int above = 3;
  bool input = false;
  for (const SpawnOptions::Descriptor& d : options.descriptors) {
    above = std::max(above, d.its + 1);
    input = input || d.its == 0;
  }
  for (const SpawnOptions::Descriptor& d : options.descriptors)
    if (absl::Status status = copies.Add(d.ours, d.its, above); !status.ok()) return status;
  if (input) return absl::OkStatus();
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0) return absl::UnavailableError(absl::StrCat("cannot open /dev/null (", std::strerror(errno), ")"));
  absl::Status status = copies.Add(nothing, 0, above);
  close(nothing);
  return status;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

absl::Status NotStarted(const SpawnOptions& options, int error) {
  const std::string text = absl::StrCat("cannot start '", options.file.empty() ? options.args[0] : options.file,
                                        "': ", std::strerror(error));
  if (error == ENOENT || error == EACCES || error == ENOTDIR) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
}

// ---- what dies with us

// Read by a signal handler.
std::atomic<pid_t> groups[256];
std::atomic<pid_t> first_parent = 0;

static_assert(std::atomic<pid_t>::is_always_lock_free);

void EndIfOrphaned(int) {
  const int before = errno;
  if (getppid() == first_parent) {
    errno = before;
    return;
  }
  for (const std::atomic<pid_t>& group : groups)
    if (const pid_t pid = group; pid > 0) kill(-pid, SIGKILL);
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  _exit(1);
}

}  // namespace

absl::StatusOr<pid_t> Spawn(const SpawnOptions& options) {
  const std::string& name = options.args.at(0);
  std::string file = !options.file.empty() ? options.file : name;
  if (options.file.empty() && name.find('/') == std::string::npos) file = FindOnPath(name, "/bin:/usr/bin");
  if (file.empty()) return NotStarted(options, ENOENT);
  Copies copies;
  if (absl::Status status = CopyDescriptors(options, copies); !status.ok()) return status;
  std::vector<char*> argv = Pointers(options.args), environment = Pointers(options.environment);
  ChildPlan plan{file.c_str(),         argv.data(),          environment.data(),
                 copies.list().data(), copies.list().size(), getpid(),
                 options.session,      options.death_signal, static_cast<rlim_t>(options.cpu_seconds)};
  const OwnStack stack;
  if (!stack.ok()) return NotStarted(options, ENOMEM);
  const SignalsBlocked blocked;
  // As posix_spawn does, which knows no death signal: no copy of the page tables of a large process, and this thread
  // goes on when the program executes.
  const pid_t pid = KERNEL_CLONE(RunChild, stack.top(), CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  if (pid < 0) return NotStarted(options, errno);
  if (plan.error == 0) return pid;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return NotStarted(options, plan.error);
}

void DieWithParentAndGroups() {
  first_parent = getppid();
  struct sigaction action {};
  action.sa_handler = EndIfOrphaned;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGCONT, &action, nullptr);
  // The only signal that both wakes a process that is stopped and has a handler. Until here it was SIGKILL.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  EndIfOrphaned(SIGCONT);
}

SignalsBlocked::SignalsBlocked() {
  Kernel(SYS_rt_sigprocmask, static_cast<long>(SIG_SETMASK), &kAllSignals, &before_, 8L);
}
SignalsBlocked::~SignalsBlocked() { Kernel(SYS_rt_sigprocmask, static_cast<long>(SIG_SETMASK), &before_, nullptr, 8L); }

void NoteGroup(pid_t group) {
  for (std::atomic<pid_t>& place : groups) {
    pid_t free = 0;
    if (place.compare_exchange_strong(free, group)) return;
  }
}

void ForgetGroup(pid_t group) {
  for (std::atomic<pid_t>& place : groups) {
    pid_t mine = group;
    if (place.compare_exchange_strong(mine, 0)) return;
  }
}

}  // namespace diapason
