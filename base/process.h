// Starts child processes. All child processes are started here: compilers, builders, runners, commands of a cluster,
// local workers.
//
// A child process
//   - leads a process group (or a session) of its own, so that it can be ended together with its descendants;
//   - gets a signal from the kernel when the thread that started it ends, even by SIGKILL, so start it from a thread
//     that outlives it;
//   - inherits only the files that it is given, has default signal handlers, and writes no core files.
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
  // Open files and their numbers in the child. By default, 0 is /dev/null, and 1 and 2 are those of this process.
  struct Descriptor {
    int ours, its;
  };
  std::vector<Descriptor> descriptors;
  bool session = false;        // leads a session, else only a process group
  int death_signal = SIGKILL;  // when the thread that calls Spawn dies
  int64_t cpu_seconds = 0;     // of the process and of each that it starts, then the kernel ends it; 0: no limit
};

// Returns the child process, which has begun to execute the program; the caller must wait for it. NotFound if the
// program does not exist or is not executable; Unavailable if the system has no processes or files left. Safe from any
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
