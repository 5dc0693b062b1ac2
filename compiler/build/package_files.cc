#include "compiler/build/package_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "base/read_file.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

// A package and nothing else: what a user has put beside it is not ours to remove.
bool IsOurs(const fs::path& dir) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    if (name != kManifestFile && name != "weights.bin" && name != "kernels" && name != "tasks") return false;
  }
  if (error) return false;
  absl::StatusOr<std::string> text = ReadPackageFile((dir / kManifestFile).string());
  if (!text.ok()) return false;
  const Json json = ParseJson(*text);
  return json.is_object() && json.value("format", Json()) == "diapason-package";
}

absl::Status CheckReplaceable(const fs::path& dir, const std::string& name) {
  std::error_code error;
  if (!fs::exists(dir, error)) return absl::OkStatus();
  if (!fs::is_directory(dir, error))
    return absl::FailedPreconditionError(
        absl::StrCat("'", name, "' is a file; give --out a folder, or a name that ends in .dpk"));
  if (fs::is_empty(dir, error) || IsOurs(dir)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "'", name,
      "' holds files that are no part of a package; give --out a new or empty folder, or a package to replace"));
}

absl::Status WriteDown(int fd, const std::string& path, const std::string& contents) {
  for (size_t done = 0; done < contents.size();) {
    const ssize_t n = write(fd, contents.data() + done, contents.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return PackageWriteError(path, errno);
    done += n;
  }
  return fsync(fd) == 0 ? absl::OkStatus() : PackageWriteError(path, errno);
}

}  // namespace

absl::StatusOr<std::string> ReadPackageFile(const std::string& path) {
  absl::StatusOr<std::string> contents = ReadWholeFile(path);
  if (contents.ok()) return contents;
  return absl::Status(contents.status().code(), absl::StrCat("cannot read ", path, ": ", contents.status().message()));
}

absl::Status PackageWriteError(const std::string& path, int error) {
  const std::string text = absl::StrCat("cannot write ", path, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT)
    return absl::ResourceExhaustedError(text + "; make room or choose another --out");
  return absl::UnavailableError(text + "; choose an --out where you may write");
}

uint64_t ChecksumOfBytes(std::string_view bytes) {
  uint64_t sum = 0xcbf29ce484222325ull ^ bytes.size();
  const auto mix = [&](uint64_t word) {
    sum = (sum ^ word) * 0x100000001b3ull;
    sum ^= sum >> 29;  // FNV's multiplication carries upwards only
  };
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    mix(word);
  }
  for (; i < bytes.size(); ++i) mix(static_cast<uint8_t>(bytes[i]));
  return sum;
}

PackageFolder::PackageFolder(std::string destination, std::string temporary)
    : destination_(std::move(destination)), temporary_(std::move(temporary)) {}

PackageFolder::PackageFolder(PackageFolder&& other) noexcept
    : destination_(std::move(other.destination_)), temporary_(std::exchange(other.temporary_, "")) {}

PackageFolder::~PackageFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

absl::StatusOr<PackageFolder> PackageFolder::Create(const std::string& dir) {
  std::error_code error;
  fs::path destination = fs::weakly_canonical(fs::absolute(dir, error), error);
  if (error || dir.empty())
    return absl::InvalidArgumentError(absl::StrCat("'", dir, "' is no folder name; give --out a folder"));
  if (!destination.has_filename()) destination = destination.parent_path();  // "out/"
  RETURN_IF_ERROR(CheckReplaceable(destination, dir));
  fs::create_directories(destination.parent_path(), error);
  std::string temporary = absl::StrCat(destination.string(), ".tmp-XXXXXX");
  if (mkdtemp(temporary.data()) == nullptr) return PackageWriteError(destination.string(), errno);
  fs::permissions(temporary, fs::perms(0755), error);
  return PackageFolder(destination.string(), std::move(temporary));
}

absl::Status PackageFolder::Write(const std::string& name, const std::string& contents) {
  const std::string path = absl::StrCat(temporary_, "/", name);
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return PackageWriteError(path, errno);
  absl::Status written = WriteDown(fd, path, contents);
  if (close(fd) != 0 && written.ok()) written = PackageWriteError(path, errno);
  return written;
}

absl::Status PackageFolder::Commit() {
  RETURN_IF_ERROR(CheckReplaceable(destination_, destination_));  // others may have written there meanwhile
  std::error_code error;
  if (!fs::exists(destination_, error) || fs::is_empty(destination_, error)) {
    if (rename(temporary_.c_str(), destination_.c_str()) != 0) return PackageWriteError(destination_, errno);
    temporary_.clear();
    return absl::OkStatus();
  }
  // An older package: the two change places in one step, and the destructor removes the older one. Where the file
  // system cannot do that, the older one steps aside first.
  if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, destination_.c_str(), RENAME_EXCHANGE) == 0)
    return absl::OkStatus();
  const std::string aside = absl::StrCat(temporary_, "-old");
  if (rename(destination_.c_str(), aside.c_str()) != 0) return PackageWriteError(destination_, errno);
  if (rename(temporary_.c_str(), destination_.c_str()) != 0) {
    const absl::Status status = PackageWriteError(destination_, errno);
    rename(aside.c_str(), destination_.c_str());
    return status;
  }
  temporary_ = aside;
  return absl::OkStatus();
}

}  // namespace diapason
