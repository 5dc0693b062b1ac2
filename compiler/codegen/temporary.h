// Files for a compiler, in a folder that goes with its owner.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

// A fresh directory under $TMPDIR (or /tmp), removed with its contents by the destructor.
class TemporaryDirectory {
 public:
  static absl::StatusOr<TemporaryDirectory> Create();
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

// Unavailable, naming the path and the reason.
absl::Status WriteFile(const std::string& path, const std::string& contents);
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit = SIZE_MAX);

}  // namespace diapason
