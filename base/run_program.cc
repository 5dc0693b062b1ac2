#include "base/run_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/process.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

// A compiler takes 50 ms or more, so looking so often costs nothing that shows, and needs no signal handler and no
// thread.
constexpr std::chrono::milliseconds kLook{1};
// While its outputs are open; their end is what tells of its own, but for what left them to another process.
constexpr int kLookWhileItSpeaksMs = 20;
constexpr int64_t kCpuMarginSeconds = 5;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() { Close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  void Set(int fd) {
    Close();
    fd_ = fd;
  }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status NoFile() {
  return absl::UnavailableError(absl::StrCat("no more files can be opened (", std::strerror(errno), ")"));
}

// The end that is read does not block.
absl::Status MakePipe(Fd& read_end, Fd& write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return NoFile();
  read_end.Set(ends[0]);
  write_end.Set(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return absl::OkStatus();
}

// A file in memory: whoever does not read it to its end disturbs nobody.
absl::Status MakeInput(const std::string& text, Fd& file) {
  file.Set(memfd_create("input", MFD_CLOEXEC));
  if (file.get() < 0) return NoFile();
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(file.get(), text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return absl::UnavailableError(absl::StrCat("cannot hand on an input (", std::strerror(errno), ")"));
    done += static_cast<size_t>(count);
  }
  lseek(file.get(), 0, SEEK_SET);
  return absl::OkStatus();
}

// Takes what is there; closes the pipe at its end.
void Drain(Fd& pipe, size_t limit, std::string& text) {
  char bytes[65536];
  while (pipe.get() >= 0) {
    const ssize_t count = read(pipe.get(), bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) return pipe.Close();
    text.append(bytes, std::min(static_cast<size_t>(count), limit - std::min(limit, text.size())));
  }
}

// A program under way, whose group ends with the object.
class Running {
 public:
  absl::Status Start(const ProgramOptions& options) {
    SpawnOptions spawn;
    spawn.args = options.args;
    spawn.environment = options.environment;
    // A process that nobody waits for any more (a parent that was killed) does not go on for ever.
    if (options.timeout_seconds < 1e6)
      spawn.cpu_seconds = static_cast<int64_t>(std::ceil(options.timeout_seconds)) + kCpuMarginSeconds;
    Fd input, output, errors;
    if (!options.input.empty()) {
      if (absl::Status made = MakeInput(options.input, input); !made.ok()) return made;
      spawn.descriptors.push_back({input.get(), 0});
    }
    if (absl::Status made = MakePipe(output_, output); !made.ok()) return made;
    spawn.descriptors.push_back({output.get(), 1});
    if (!options.one_output) {
      if (absl::Status made = MakePipe(errors_, errors); !made.ok()) return made;
    }
    spawn.descriptors.push_back({options.one_output ? output.get() : errors.get(), 2});
    const SignalsBlocked blocked;
    absl::StatusOr<pid_t> pid = Spawn(spawn);
    if (!pid.ok()) return pid.status();
    pid_ = *pid;
    NoteGroup(pid_);
    return absl::OkStatus();
  }
  ~Running() {
    if (pid_ > 0) KillAndReap(nullptr);
  }

  // False at the deadline.
  bool WaitUntil(Clock::time_point deadline, size_t limit, ProgramResult& result) {
    while (true) {
      siginfo_t info{};
      // Looked at and not reaped: as long as it is a zombie, nobody else can have the number of its group.
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno != EINTR)
        return true;
      if (info.si_pid == pid_) return true;
      if (Clock::now() >= deadline) return false;
      if (output_.get() < 0 && errors_.get() < 0) {
        std::this_thread::sleep_for(kLook);
        continue;
      }
      pollfd fds[2] = {{output_.get(), POLLIN, 0}, {errors_.get(), POLLIN, 0}};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
      poll(fds, 2, static_cast<int>(std::clamp<int64_t>(left, 0, kLookWhileItSpeaksMs)));
      Read(limit, result);
    }
  }
  // Ends the group, and takes what is still in the pipes: they may stay open in a process that left the group.
  absl::Status Finish(size_t limit, ProgramResult& result) {
    int status = 0;
    const bool reaped = KillAndReap(&status);
    Read(limit, result);
    if (!reaped) return absl::InternalError("somebody else has waited for a process of ours; is SIGCHLD ignored?");
    result.signalled = WIFSIGNALED(status);
    result.exit_code = result.signalled ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return absl::OkStatus();
  }

 private:
  void Read(size_t limit, ProgramResult& result) {
    Drain(output_, limit, result.output);
    Drain(errors_, limit, result.errors);
  }
  bool KillAndReap(int* status) {
    kill(-pid_, SIGKILL);
    ForgetGroup(pid_);
    pid_t reaped = -1;
    do {
      reaped = waitpid(pid_, status, 0);
    } while (reaped < 0 && errno == EINTR);
    pid_ = 0;
    return reaped > 0;
  }

  Fd output_, errors_;
  pid_t pid_ = 0;
};

}  // namespace

absl::StatusOr<ProgramResult> RunProgram(const ProgramOptions& options) {
  // A wait longer than this is for ever, and fits the clock.
  const std::chrono::duration<double> timeout(std::clamp(options.timeout_seconds, 0.0, 1e9));
  const Clock::time_point deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(timeout);
  Running running;
  if (absl::Status started = running.Start(options); !started.ok()) return started;
  ProgramResult result;
  const bool in_time = running.WaitUntil(deadline, options.max_output_bytes, result);
  if (absl::Status finished = running.Finish(options.max_output_bytes, result); !finished.ok()) return finished;
  if (in_time) return result;
  return absl::DeadlineExceededError(
      absl::StrCat(options.args[0], ": killed after ", options.timeout_seconds, " seconds"));
}

}  // namespace diapason
