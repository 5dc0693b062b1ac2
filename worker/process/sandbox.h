// Walls around builders and runners: no network, files that can be read but not written, no sight of other processes.
// Of what a process in it writes, only its scratch folder stays and is seen by others.
//
// Done by bubblewrap (bwrap), which makes namespaces for a process without privileges of its own. A process inside has
//   - a network of its own with nothing but loopback;
//   - the host's files, read-only; /run, /tmp, /var/tmp and where scratch folders are made, where services have their
//     sockets and others their files, are empty but for its own scratch folder and what PATH, LD_LIBRARY_PATH, CC,
//     CUDA_HOME, CUDA_PATH, VIRTUAL_ENV and CONDA_PREFIX name there; /dev holds what every process needs and, for those
//     that talk to a device, the nodes of GPUs that are there at its start;
//   - process numbers of its own: it can neither signal nor trace others, and all that it starts dies with it;
//   - its scratch folder, the caches of drivers inside (POCL_CACHE_DIR, CUDA_CACHE_PATH, XDG_CACHE_HOME).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

class ScratchFolder;
struct ChildOptions;

enum class SandboxMode { kOff, kAuto, kOn };

// "off", "auto", "on"; nothing for another text.
std::optional<SandboxMode> ParseSandboxMode(const std::string& text);

// Copies are alike; safe from any thread.
class Sandbox {
 public:
  // None: processes run as they are. `why`: for the log; empty when none was wanted.
  static Sandbox None(std::string why = "");
  // What `mode` gives on this host, tried with a shell that writes to a folder in `scratch`. Unavailable, with the
  // reason and how to fix it, when it is kOn and there is none; kAuto then gives None.
  static absl::StatusOr<Sandbox> Find(SandboxMode mode, ScratchFolder& scratch);

  bool in_force() const { return !program_.empty(); }
  // One line for the log: what is in force.
  std::string Describe() const;
  // Why nothing is, although it was wanted; else empty.
  const std::string& why_not() const { return why_not_; }

  // Has the child run inside, with its scratch folder. `devices`: with the nodes of the GPUs.
  void Wrap(bool devices, ChildOptions& child) const;

 private:
  std::string program_;  // of bwrap; empty: nothing is in force
  std::string why_not_;
};

}  // namespace diapason
