// Scratch folders that go away with their owner, even when it was killed.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace diapason {

// A fresh folder "diapason-worker-..." below `base`, removed by the destructor. A lock file inside, held while the
// owner lives, tells folders in use from those of owners that were killed: Create removes the latter from `base`.
class ScratchFolder {
 public:
  // `base` empty: $TMPDIR, or /tmp. Unavailable, with the path and the reason, when no folder can be made there.
  static absl::StatusOr<std::unique_ptr<ScratchFolder>> Create(std::string base = "");
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  // An empty folder of that name inside; what was in it is gone.
  absl::StatusOr<std::string> Fresh(const std::string& name);

 private:
  ScratchFolder(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string path_;
  const int lock_fd_;
};

}  // namespace diapason
