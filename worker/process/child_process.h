// A child process that works for us and that we can end for certain.
//
// The child leads a session of its own; ending it ends everything in that session (compilers it started). It has no
// file of ours but its socket, and is killed by the kernel when the thread that spawned it dies, so that thread must
// outlive it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/environment.h"
#include "worker/process/frame.h"

namespace diapason {

// File descriptor of its socket, in the child.
inline constexpr int kChildSocket = 3;

struct ChildOptions {
  std::string program = "/proc/self/exe";  // path of the file to execute
  std::vector<std::string> args;           // argv, the program's name first
  std::string scratch;                     // existing folder: TMPDIR of the child; its output goes to a file there
  // It gets what compilers and drivers need of our environment (base/environment.h), these in place of ours of that
  // name,
  EnvironmentVariables environment;
  std::vector<std::string> keep_environment;  // and ours of these names.
  // Runs `program` for us, argv: gets the program's path and arguments behind its own. It hands on kChildSocket, exits
  // as the program did (128 and the signal's number after a signal), and the program dies with it.
  std::vector<std::string> wrapper;
  uint32_t max_message_bytes = kMaxFrameBytes;  // of one that it sends; a longer one is a broken stream
};

// For one thread, the one that called Spawn.
class ChildProcess {
 public:
  // Unavailable when the system gives no process, socket or file.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Spawn(const ChildOptions& options);
  // Kills what still runs. Waits a moment for the kernel to bury it; one that is stuck in a driver stays behind.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  int socket() const { return socket_; }  // for poll

  // Queues a message and writes what the socket takes; never blocks. A child that is gone is noticed by Receive.
  void Send(const google::protobuf::MessageLite& message);
  // True while queued bytes wait for the socket to take them: poll for POLLOUT and call Flush.
  bool has_unsent() const { return sent_ < unsent_.size(); }
  void Flush();

  // All whole messages that have arrived. Sets `ended` when no more will come; DataLoss for a broken stream.
  absl::StatusOr<std::vector<std::string>> Receive(bool& ended);

  // Whether the process or one that it started is stopped (SIGSTOP), by us or by another.
  bool stopped() const;
  // Stops and continues the child and what it has started. Two Pauses need two Resumes.
  void Pause();
  void Resume();

  // Ends every process of the session at once.
  void Kill();
  // The wait status once the child has ended, by itself or by Kill; what is left of its session is ended first. Never
  // blocks.
  std::optional<int> Reap();

  // The end of what the child wrote to its output, for error texts. Valid until the scratch folder is removed.
  std::string OutputTail(size_t max_bytes = 2000) const;

 private:
  ChildProcess(pid_t pid, int socket, std::string output, const ChildOptions& options)
      : pid_(pid),
        socket_(socket),
        output_(std::move(output)),
        wrapped_(!options.wrapper.empty()),
        decoder_(options.max_message_bytes) {}

  // Ends what is left of the session, and notes it for burial.
  void AdoptSession();

  const pid_t pid_;
  const int socket_;
  const std::string output_;
  const bool wrapped_;
  std::string unsent_;
  size_t sent_ = 0;
  FrameDecoder decoder_;
  int pauses_ = 0;
  std::vector<pid_t> paused_;
  std::optional<int> wait_status_;
  std::vector<pid_t> orphans_;  // members of the session that we may have to bury
};

// Prepares the process that was spawned: no new privileges, a limit of memory past which it exits with
// kExitOutOfMemory, descriptors not handed on. To be called first thing in the child.
void PrepareChildProcess(int socket);
// Address space of this process and of those it starts; 0: leaves it.
void LimitMemory(int64_t bytes);
// Forgets output so far, so that OutputTail speaks of the present job only.
void TruncateOutput();
inline constexpr int kExitOutOfMemory = 86;

// "died of signal 11 (Segmentation fault)", "exited with status 1".
std::string DescribeWaitStatus(int status);

// Processes that the kernel has killed so far on this machine because memory was out; 0 if it does not tell.
int64_t SystemOutOfMemoryKills();

}  // namespace diapason
