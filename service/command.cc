#include "service/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"

extern char** environ;

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutput = 16 << 20;

// Both ends of a pipe, closed at the end at the latest.
struct Pipe {
  Pipe() { ok = pipe2(ends, O_CLOEXEC) == 0; }
  ~Pipe() {
    Close(0);
    Close(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void Close(int end) {
    if (ends[end] >= 0) close(ends[end]);
    ends[end] = -1;
  }
  int ends[2] = {-1, -1};
  bool ok = false;
};

// Moves bytes until the program has closed its outputs; false when that takes too long.
bool Converse(Pipe& in, Pipe& out, Pipe& err, const std::string& input, Clock::time_point until, std::string* said,
              std::string* complaint) {
  size_t written = 0;
  if (input.empty()) in.Close(1);
  fcntl(in.ends[1], F_SETFL, O_NONBLOCK);
  while (out.ends[0] >= 0 || err.ends[0] >= 0) {
    pollfd fds[3] = {{out.ends[0], POLLIN, 0}, {err.ends[0], POLLIN, 0}, {in.ends[1], POLLOUT, 0}};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    if (poll(fds, 3, static_cast<int>(std::min<int64_t>(left, 1000))) < 0 && errno != EINTR) return false;
    char bytes[65536];
    for (const auto& [pipe, fd, text] : {std::tuple{&out, &fds[0], said}, std::tuple{&err, &fds[1], complaint}}) {
      if (fd->revents == 0) continue;
      const ssize_t count = read(fd->fd, bytes, sizeof bytes);
      if (count > 0 && text->size() < kMaxOutput) text->append(bytes, static_cast<size_t>(count));
      if (count == 0) pipe->Close(0);
    }
    if (fds[2].revents == 0) continue;
    const ssize_t count = write(in.ends[1], input.data() + written, input.size() - written);
    if (count > 0) written += static_cast<size_t>(count);
    if (written == input.size() || (count < 0 && errno != EAGAIN)) in.Close(1);
  }
  return true;
}

std::string LastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& args, const std::string& input,
                                       double timeout_seconds) {
  const std::string& name = args.at(0);
  // A program that does not read its input is no reason for us to end.
  static const auto ignored [[maybe_unused]] = signal(SIGPIPE, SIG_IGN);
  Pipe in, out, err;
  if (!in.ok || !out.ok || !err.ok) return absl::ResourceExhaustedError("no more files can be opened");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.ends[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out.ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, err.ends[1], 2);
  std::vector<char*> argv;
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, name.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed == ENOENT) return absl::NotFoundError(absl::StrCat("there is no program '", name, "' on this host"));
  if (failed != 0) return absl::UnavailableError(absl::StrCat("cannot run '", name, "' (", std::strerror(failed), ")"));
  in.Close(0);
  out.Close(1);
  err.Close(1);
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_seconds));
  std::string said, complaint;
  const bool in_time = Converse(in, out, err, input, until, &said, &complaint);
  if (!in_time) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time)
    return absl::DeadlineExceededError(absl::StrCat("'", name, "' took longer than ", timeout_seconds, " s and was killed"));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return said;
  const std::string how = WIFEXITED(status) ? absl::StrCat("status ", WEXITSTATUS(status))
                                            : absl::StrCat("signal ", WTERMSIG(status));
  return absl::UnknownError(absl::StrCat("'", name, "' failed with ", how, ": ", LastLine(complaint)));
}

std::string ShellWord(const std::string& text) {
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace diapason
