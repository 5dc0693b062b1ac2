#include "worker/process/scratch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace diapason {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "diapason-worker-";
constexpr char kLockName[] = "lock";
constexpr int kAttempts = 20;

// The lock is released by the kernel when its holder dies. -1 if there is none to take.
int TryLock(const fs::path& folder, int flags) {
  int fd = open((folder / kLockName).c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -1;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  close(fd);
  return -1;
}

// Whether the lock that was taken is that of the folder, and not of one that was removed before it was taken.
bool IsThere(const fs::path& folder, int lock) {
  struct stat taken {
  }, there{};
  return fstat(lock, &taken) == 0 && stat((folder / kLockName).c_str(), &there) == 0 && taken.st_ino == there.st_ino &&
         taken.st_dev == there.st_dev;
}

void RemoveAbandoned(const fs::path& base) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(base, error)) {
    if (entry.path().filename().string().rfind(kPrefix, 0) != 0) continue;
    int fd = TryLock(entry.path(), O_RDWR);
    if (fd < 0) continue;  // in use, another user's, or so young that it has no lock yet
    fs::remove_all(entry.path(), error);
    close(fd);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchFolder>> ScratchFolder::Create(std::string base) {
  if (base.empty()) {
    const char* tmpdir = getenv("TMPDIR");
    base = tmpdir != nullptr && *tmpdir != '\0' ? tmpdir : "/tmp";
  }
  RemoveAbandoned(base);
  std::string path, reason;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    path = (fs::path(base) / (std::string(kPrefix) + "XXXXXX")).string();
    if (mkdtemp(path.data()) == nullptr) {
      return absl::UnavailableError("cannot make a scratch folder in '" + base + "' (" + std::strerror(errno) +
                                    "): free some space or set TMPDIR to a folder that can be written");
    }
    const int lock = TryLock(path, O_RDWR | O_CREAT | O_EXCL);
    reason = std::strerror(errno);
    if (lock >= 0 && IsThere(path, lock)) return std::unique_ptr<ScratchFolder>(new ScratchFolder(path, lock));
    // Another process took the lock before us and the folder for one of a killed owner.
    if (lock >= 0) close(lock);
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  return absl::UnavailableError("cannot lock the scratch folder '" + path + "' (" + reason +
                                "): free some space or set TMPDIR to a folder that can be written");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  close(lock_fd_);
}

absl::StatusOr<std::string> ScratchFolder::Fresh(const std::string& name) {
  std::error_code error;
  fs::path folder = fs::path(path_) / name;
  fs::remove_all(folder, error);
  fs::create_directory(folder, error);
  if (error) {
    return absl::UnavailableError("cannot make the scratch folder '" + folder.string() + "' (" + error.message() +
                                  "): free some space or set TMPDIR to a folder that can be written");
  }
  return folder.string();
}

}  // namespace diapason
