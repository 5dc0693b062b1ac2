#include "base/replace_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("cannot write '", path, "' (", error != 0 ? std::strerror(error) : "Input/output error",
                   "); name a file in a folder that exists, with room, that you may write to"));
}

absl::Status WriteTo(const std::string& file_path, const std::string& path,
                     const std::function<absl::Status(std::ostream&)>& write) {
  errno = 0;
  std::ofstream file(file_path, std::ios::binary | std::ios::trunc);
  if (!file) return CannotWrite(path, errno);
  const absl::Status written = write(file);
  file.flush();
  // A stream that takes no more is why `write` failed, if it did.
  if (!file) return CannotWrite(path, errno);
  return written;
}

bool IsSpecial(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  return !error && std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
}

}  // namespace

absl::Status ReplaceFile(const std::string& path, const std::function<absl::Status(std::ostream&)>& write) {
  if (IsSpecial(path)) return WriteTo(path, path, write);
  std::error_code error;
  std::string place = std::filesystem::weakly_canonical(path, error).string();
  if (error || place.empty()) place = path;
  const std::string part = absl::StrCat(place, ".", getpid(), ".part");
  absl::Status written = WriteTo(part, path, write);
  if (written.ok() && std::rename(part.c_str(), place.c_str()) != 0) written = CannotWrite(path, errno);
  if (!written.ok()) std::remove(part.c_str());
  return written;
}

absl::Status CheckReplaceable(const std::string& path, const std::string& kind,
                              const std::vector<std::string_view>& marks) {
  if (access(path.c_str(), F_OK) != 0 || IsSpecial(path)) return absl::OkStatus();
  std::ifstream file(path, std::ios::binary);
  std::string begins;
  for (const std::string_view mark : marks) begins.resize(std::max(begins.size(), mark.size()));
  file.read(begins.data(), static_cast<std::streamsize>(begins.size()));
  begins.resize(static_cast<size_t>(file.gcount()));
  if (begins.empty()) return absl::OkStatus();
  for (const std::string_view mark : marks)
    if (absl::StartsWith(begins, absl::string_view(mark.data(), mark.size()))) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("'", path, "' is there already and is no ", kind, "; name another file"));
}

}  // namespace diapason
