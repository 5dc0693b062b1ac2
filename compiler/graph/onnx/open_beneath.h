// Files that a model names.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace diapason {

// A file opened for reading, and its size. Closed by the destructor.
class OpenedFile {
 public:
  OpenedFile(int fd, int64_t size) : fd_(fd), size_(size) {}
  OpenedFile(OpenedFile&& other) noexcept : fd_(other.fd_), size_(other.size_) { other.fd_ = -1; }
  OpenedFile& operator=(OpenedFile&&) = delete;
  ~OpenedFile();
  int fd() const { return fd_; }
  int64_t size() const { return size_; }
  // Fills `data` from `offset` on. DataLoss when the file ends before, or cannot be read.
  absl::Status ReadAt(int64_t offset, void* data, int64_t bytes) const;

 private:
  int fd_;
  const int64_t size_;
};

// Opens the regular file `path`, relative to `directory` ("" is the working folder), for reading. A model is input from
// outside, so the path may neither leave the folder nor pass through a symbolic link, whatever happens to the files
// meanwhile. InvalidArgument for a path that does; NotFound, with the reason, when there is no such regular file.
absl::StatusOr<OpenedFile> OpenBeneath(const std::string& directory, const std::string& path);

}  // namespace diapason
