// Starting another process: the one place that does, for compilers, builders and runners, commands of a cluster, local
// workers.
//
// A process that is started here
//   - leads a process group (or a session) of its own, so that it can be ended with all that it has started;
//   - is sent a signal by the kernel when the thread that started it ends, even by SIGKILL: start it from a thread that
//   outlives it;
//   - has no file of ours but those that it is given, default signals, and writes no core files.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

struct SpawnOptions {
  std::vector<std::string> args;  // argv, the program's name first
  std::string file;               // path of the file to execute; empty: args[0], looked for in PATH if it has no '/'
  std::vector<std::string> environment;  // "NAME=value" (base/environment.h)
  // Open files of ours and their numbers in the process. Without one for 0 it reads from /dev/null; 1 and 2 are ours if
  // not given.
  struct Descriptor {
    int ours, its;
  };
  std::vector<Descriptor> descriptors;
  bool session = false;        // leads a session, else only a process group
  int death_signal = SIGKILL;  // when the thread that calls Spawn dies
  int64_t cpu_seconds = 0;     // of the process and of each that it starts, then the kernel ends it; 0: no limit
};

// Returns the process, which has begun to execute the program; the caller is to wait for it. NotFound when there
// is no such program, or it may not be executed; Unavailable when the system has no process or file left. Safe from any
// thread.
absl::StatusOr<pid_t> Spawn(const SpawnOptions& options);

// Ends this process as soon as its parent has died, with every process group that RunProgram has under way
// (base/run_program.h), even while it is stopped (SIGSTOP). REQUIRES: called at the beginning of main, before there are
// threads. Uses the signal SIGCONT.
void DieWithParentAndGroups();

// For RunProgram, which notes the groups that DieWithParentAndGroups ends. Blocks signals in this thread while it
// lives.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  uint64_t before_ = 0;
};
// REQUIRES: SignalsBlocked since before the group was made.
void NoteGroup(pid_t group);
void ForgetGroup(pid_t group);

}  // namespace diapason
