#include "compiler/graph/onnx/open_beneath.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// The parts of a path that stays below where it starts; none otherwise.
std::vector<std::string> PartsOf(const std::string& path) {
  std::vector<std::string> parts;
  const std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
  if (normal.is_absolute()) return {};
  for (const std::filesystem::path& part : normal) {
    if (part == ".." || part.empty()) return {};
    if (part != ".") parts.push_back(part.string());
  }
  return parts;
}

// Folder by folder, none of them a link: what openat2's RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS do, also on kernels and
// in containers without it. -1 with errno.
int OpenParts(const std::string& directory, const std::vector<std::string>& parts) {
  int at = open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; at >= 0 && i < parts.size(); ++i) {
    // Not blocked by a pipe that nobody writes to.
    const int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
    const int next = openat(at, parts[i].c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind);
    const int error = errno;
    close(at);
    errno = error;
    at = next;
  }
  return at;
}

}  // namespace

OpenedFile::~OpenedFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OpenedFile::ReadAt(int64_t offset, void* data, int64_t bytes) const {
  for (int64_t done = 0; done < bytes;) {
    const ssize_t n = pread(fd_, static_cast<char*>(data) + done, static_cast<size_t>(bytes - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::DataLossError(n < 0 ? std::strerror(errno) : "it ends too early");
    done += n;
  }
  return absl::OkStatus();
}

absl::StatusOr<OpenedFile> OpenBeneath(const std::string& directory, const std::string& path) {
  const std::vector<std::string> parts = PartsOf(path);
  if (parts.empty() || path.find('\0') != std::string::npos)
    return absl::InvalidArgumentError("is not beside the model");
  const int fd = OpenParts(directory, parts);
  if (fd < 0 && (errno == ELOOP || errno == EMLINK)) return absl::InvalidArgumentError("is a symbolic link");
  if (fd < 0 && errno == ENOTDIR) return absl::InvalidArgumentError("lies behind a symbolic link, or in no folder");
  if (fd < 0) return absl::NotFoundError(std::strerror(errno));
  struct stat info {};
  const bool known = fstat(fd, &info) == 0;
  OpenedFile file(fd, known ? static_cast<int64_t>(info.st_size) : 0);
  if (!known || !S_ISREG(info.st_mode)) return absl::NotFoundError("no regular file");
  return file;
}

}  // namespace diapason
