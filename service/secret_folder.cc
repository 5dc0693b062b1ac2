#include "service/secret_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/owned_fd.h"
#include "service/launcher.h"

namespace diapason {
namespace {

absl::Status Failed(const char* what, const std::string& path, int reason) {
  return absl::FailedPreconditionError(absl::StrCat("cannot ", what, " the workers' credentials in '", path, "' (",
                                                    std::strerror(reason),
                                                    "); name another folder with --worker-secrets"));
}

// In a place where others may write too, a folder of this name may be theirs.
bool IsOurs(int folder) {
  struct stat info {};
  return fstat(folder, &info) == 0 && info.st_uid == geteuid();
}

absl::Status NotOurs(const std::string& path) {
  return absl::PermissionDeniedError(
      absl::StrCat("the folder '", path,
                   "' for the workers' credentials belongs to somebody else; name another place for it with "
                   "--worker-secrets"));
}

absl::Status WriteFile(int folder, const LaunchSecret& secret, const std::string& path) {
  const std::string unfinished = secret.file + ".new";
  unlinkat(folder, unfinished.c_str(), 0);
  const OwnedFd file(openat(folder, unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (file.fd < 0 || fchmod(file.fd, 0600) != 0) return Failed("write", path, errno);
  for (size_t done = 0; done < secret.text.size();) {
    const ssize_t count = write(file.fd, secret.text.data() + done, secret.text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Failed("write", path, errno);
    done += static_cast<size_t>(count);
  }
  // Other hosts read it: it is to be on the server before a job is asked for.
  if (fsync(file.fd) != 0) return Failed("write", path, errno);
  if (renameat(folder, unfinished.c_str(), folder, secret.file.c_str()) != 0) return Failed("write", path, errno);
  return absl::OkStatus();
}

}  // namespace

SecretFolder::SecretFolder(const std::string& base, const std::string& label)
    : base_(std::filesystem::absolute(base).lexically_normal().string()),
      path_((std::filesystem::path(base_) / ("diapason-" + label)).string()) {}

absl::Status SecretFolder::Check() const {
  // Whoever may make a folder of another name there may make this one.
  std::string another = (std::filesystem::path(base_) / "diapason-check-XXXXXX").string();
  if (mkdtemp(another.data()) == nullptr) return Failed("keep", base_, errno);
  rmdir(another.c_str());
  const OwnedFd folder(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.fd < 0) return errno == ENOENT ? absl::OkStatus() : Failed("keep", path_, errno);
  return IsOurs(folder.fd) ? absl::OkStatus() : NotOurs(path_);
}

absl::Status SecretFolder::Write(const std::vector<LaunchSecret>& secrets) const {
  if (secrets.empty()) return absl::OkStatus();
  if (mkdir(path_.c_str(), 0700) != 0 && errno != EEXIST) return Failed("keep", path_, errno);
  const OwnedFd folder(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.fd < 0) return Failed("keep", path_, errno);
  if (!IsOurs(folder.fd)) return NotOurs(path_);
  if (fchmod(folder.fd, 0700) != 0) return Failed("keep", path_, errno);
  for (const LaunchSecret& secret : secrets) RETURN_IF_ERROR(WriteFile(folder.fd, secret, path_));
  return absl::OkStatus();
}

absl::Status SecretFolder::Remove() const {
  const int opened = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return errno == ENOENT ? absl::OkStatus() : Failed("remove", path_, errno);
  DIR* folder = fdopendir(opened);
  if (folder == nullptr) {
    close(opened);
    return Failed("remove", path_, ENOMEM);
  }
  const bool ours = IsOurs(opened);
  absl::Status status;
  while (const dirent* entry = ours && status.ok() ? readdir(folder) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    if (unlinkat(opened, entry->d_name, 0) != 0) status = Failed("remove", path_, errno);
  }
  closedir(folder);
  if (ours && status.ok() && rmdir(path_.c_str()) != 0) status = Failed("remove", path_, errno);
  return status;
}

}  // namespace diapason
