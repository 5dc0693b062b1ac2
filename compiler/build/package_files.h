// Files of a package: whole reads and writes, and a folder that appears at once or not at all.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

inline constexpr char kManifestFile[] = "manifest.json";

// NotFound or Unavailable, naming the file and the system's reason.
absl::StatusOr<std::string> ReadPackageFile(const std::string& path);

// A 64-bit sum over bytes (FNV-1a over 8-byte words): finds damage, not malice.
uint64_t ChecksumOfBytes(const std::string& bytes);

// A folder being written beside its destination.
//   ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Create(dir));
//   RETURN_IF_ERROR(folder.Write("manifest.json", text));
//   RETURN_IF_ERROR(folder.Commit());
// Removed by the destructor unless committed. Errors name the path and the mend.
class PackageFolder {
 public:
  // FailedPrecondition when `dir` is a file, or a folder with anything in it but a package (a manifest.json with our
  // format name, and the other parts). Missing parents are made.
  static absl::StatusOr<PackageFolder> Create(const std::string& dir);
  PackageFolder(PackageFolder&& other) noexcept;
  PackageFolder& operator=(PackageFolder&&) = delete;
  ~PackageFolder();

  // Writes a file, with the folders in its name, down to the disk. ResourceExhausted when the disk is full.
  absl::Status Write(const std::string& name, const std::string& contents);
  // Puts the folder at its destination; an older package there is replaced in one step, then removed.
  absl::Status Commit();

 private:
  PackageFolder(std::string destination, std::string temporary);
  std::string destination_, temporary_;
};

}  // namespace diapason
