#include "compiler/codegen/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>

#include "base/mutex.h"

namespace diapason {

namespace {

// Of directories that are locked, and of those that are not yet, or cannot be: these are left alone.
constexpr char kLocked[] = "diapason-locked-", kFresh[] = "diapason-";

// Open, until it is closed; -1: another process has it, or it cannot be locked.
int Lock(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder >= 0 && flock(folder, LOCK_EX | LOCK_NB) == 0) return folder;
  if (folder >= 0) close(folder);
  return -1;
}

// Whether the process asks for the first time.
bool IsNew(const std::string& base) {
  static auto& mutex = *new Mutex;
  static auto& known = *new std::set<std::string>;
  const MutexLock lock(mutex);
  return known.insert(base).second;
}

// Removes what processes that were ended have left.
void RemoveAbandoned(const std::string& base) {
  std::error_code error;
  std::filesystem::directory_iterator entry(base, error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    const std::filesystem::path path = entry->path();
    entry.increment(error);
    if (path.filename().string().rfind(kLocked, 0) != 0) continue;
    struct stat info {};
    if (lstat(path.c_str(), &info) != 0 || info.st_uid != geteuid()) continue;
    std::error_code ignored;
    const int lock = Lock(path);
    if (lock < 0) continue;
    std::filesystem::remove_all(path, ignored);
    close(lock);
  }
}

}  // namespace

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create() {
  const char* set = std::getenv("TMPDIR");
  const std::string base = set != nullptr && *set != '\0' ? set : "/tmp";
  if (IsNew(base)) RemoveAbandoned(base);
  std::string path = base + "/" + kFresh + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return absl::UnavailableError("cannot make a folder in " + base + ": " + std::strerror(errno) +
                                  "; set TMPDIR to a folder that can be written to");
  const int lock = Lock(path);
  // Others look for the name that it gets once it is locked.
  const std::string locked = base + "/" + kLocked + path.substr(path.size() - 6);
  if (lock >= 0 && std::rename(path.c_str(), locked.c_str()) == 0) path = locked;
  return TemporaryDirectory(std::move(path), lock);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

absl::Status WriteFile(const std::string& path, const std::string& contents) {
  FILE* file = std::fopen(path.c_str(), "wbe");
  const bool written = file != nullptr && std::fwrite(contents.data(), 1, contents.size(), file) == contents.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (written && closed) return absl::OkStatus();
  return absl::UnavailableError("cannot write " + path + ": " + std::strerror(errno) +
                                "; free space there, or set TMPDIR to a folder with space");
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t limit) {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rbe"), std::fclose);
  if (file == nullptr) return absl::UnavailableError("cannot read " + path + ": " + std::strerror(errno));
  std::string contents;
  char chunk[1 << 16];
  size_t got;
  while (contents.size() < limit && (got = std::fread(chunk, 1, sizeof chunk, file.get())) > 0)
    contents.append(chunk, std::min(got, limit - contents.size()));
  if (std::ferror(file.get()) != 0) return absl::UnavailableError("cannot read " + path + ": " + std::strerror(errno));
  return contents;
}

}  // namespace diapason
