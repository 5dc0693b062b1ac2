#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/owned_fd.h"
#include "base/read_file.h"

namespace diapason {

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const OwnedFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return UnreadableFile(errno);
  struct stat facts {};
  if (fstat(file.fd, &facts) != 0 || !S_ISREG(facts.st_mode)) return absl::InvalidArgumentError("it is no file");
  const auto size = static_cast<size_t>(facts.st_size);
  if (size == 0) return std::shared_ptr<const MappedFile>(new MappedFile({}));
  void* const bytes = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (bytes == MAP_FAILED) return UnreadableFile(errno);
  return std::shared_ptr<const MappedFile>(new MappedFile({static_cast<const char*>(bytes), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

}  // namespace diapason
