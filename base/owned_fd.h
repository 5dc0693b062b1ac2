// A file descriptor that is closed with its scope.
#pragma once

#include <unistd.h>

namespace diapason {

struct OwnedFd {
  explicit OwnedFd(int opened) : fd(opened) {}
  ~OwnedFd() {
    if (fd >= 0) close(fd);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  const int fd;  // negative: it could not be opened
};

}  // namespace diapason
