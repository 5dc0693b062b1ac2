#include "base/read_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/owned_fd.h"

namespace diapason {

absl::StatusOr<std::string> ReadWholeFile(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return absl::NotFoundError(std::strerror(errno));
  std::string text;
  char part[1 << 16];
  for (;;) {
    const ssize_t got = read(file.fd, part, sizeof part);
    if (got == 0) return text;
    if (got > 0) {
      text.append(part, static_cast<size_t>(got));
    } else if (errno != EINTR) {
      return absl::NotFoundError(std::strerror(errno));
    }
  }
}

absl::StatusOr<std::string> ReadNamedFile(const std::string& what, const std::string& path) {
  absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (text.ok()) return text;
  return absl::NotFoundError("cannot read " + what + " '" + path + "' (" + std::string(text.status().message()) + ")");
}

}  // namespace diapason
