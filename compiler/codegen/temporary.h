// Files for a compiler, in a folder that goes with its owner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

// A fresh directory under $TMPDIR (or /tmp), removed with its contents by the destructor, or if the process is ended
// before, by the next one that makes such directories there: they are locked while they have an owner (flock).
class TemporaryDirectory {
 public:
  static absl::StatusOr<TemporaryDirectory> Create();
  TemporaryDirectory(TemporaryDirectory&& other) noexcept
      : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {
    other.path_.clear();
  }
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  TemporaryDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;  // the directory, open and locked; -1: it could not be
};

// Unavailable, naming the path and the reason.
absl::Status WriteFile(const std::string& path, const std::string& contents);
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit = SIZE_MAX);

}  // namespace diapason
