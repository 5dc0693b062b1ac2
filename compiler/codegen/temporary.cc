#include "compiler/codegen/temporary.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

namespace diapason {

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create() {
  const char* set = std::getenv("TMPDIR");
  const std::string base = set != nullptr && *set != '\0' ? set : "/tmp";
  std::string path = base + "/diapason-XXXXXX";
  if (mkdtemp(path.data()) == nullptr)
    return absl::UnavailableError("cannot make a folder in " + base + ": " + std::strerror(errno) +
                                  "; set TMPDIR to a folder that can be written to");
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
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
