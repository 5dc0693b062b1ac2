// A package as one file (.dpk): a zip archive whose entries are the files of a package folder, without compression, so
// that they are read where they lie in memory.
//
// Entries are stored (method 0), manifest.json last. weights.bin begins at a multiple of 4096 bytes. An archive that
// `zip -0 -r` made of a folder is one as well. It is below 4 GiB, because Debian's minizip reads no zip64. minizip
// reads and writes the structure, because libzip does not tell where an entry lies.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mapped_file.h"
#include "compiler/build/package_files.h"

namespace diapason {

// Reading, by any number of threads. What is inconsistent is refused when the archive is opened, before any of it is
// used: entries that are compressed, encrypted, twice there, outside of the file or over each other, and names that
// would lie outside of a folder.
class PackageArchive {
 public:
  // Maps the file. NotFound, Unavailable for one that cannot be read; DataLoss for one that is no such archive. The
  // file must not be changed while it is in use; replacing it by another one (rename) is harmless.
  static absl::StatusOr<std::shared_ptr<const PackageArchive>> Open(const std::string& path);
  // The bytes of such a file, which stay the caller's and must outlive this; `name` stands for the path in messages.
  static absl::StatusOr<std::shared_ptr<const PackageArchive>> FromMemory(std::string_view bytes,
                                                                          const std::string& name);
  PackageArchive(const PackageArchive&) = delete;
  PackageArchive& operator=(const PackageArchive&) = delete;

  // The contents of an entry. NotFound when there is none of that name; DataLoss when its checksum (CRC-32) does not
  // match.
  absl::StatusOr<std::string_view> Read(const std::string& name) const;
  const std::string& path() const { return path_; }

 private:
  struct Entry {
    uint64_t offset = 0, bytes = 0;
    uint32_t crc = 0;
  };

  PackageArchive(std::string path, std::string_view bytes, std::shared_ptr<const MappedFile> file)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes) {}
  absl::Status ReadEntries();
  absl::Status AddEntry(void* zip);
  absl::Status CheckOverlaps() const;
  absl::Status Bad(const std::string& why) const;

  const std::string path_;
  const std::shared_ptr<const MappedFile> file_;  // null: the bytes are the caller's
  const std::string_view bytes_;
  std::map<std::string, Entry> entries_;
};

// Whether `path` names a package of one file, by its ending.
bool IsArchiveName(const std::string& path);

// What a file may hold. Sizes and offsets from 4 GiB on take 64 bits (zip64), which minizip 1.1 writes, but does not
// read where a long has 64 bits; what is left is for the list of entries.
inline constexpr uint64_t kMostArchiveBytes = uint64_t{3840} << 20;

// Writing: beside the destination first, then renamed. FailedPrecondition when there is something else than such an
// archive at `path`. Write: InvalidArgument for what would make the file larger than `most_bytes`. Disk errors name the
// path.
absl::StatusOr<std::unique_ptr<PackageWriter>> CreatePackageArchive(const std::string& path,
                                                                    uint64_t most_bytes = kMostArchiveBytes);

}  // namespace diapason
