// Files of a package: whole reads and writes, and a folder that appears at once or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

inline constexpr char kManifestFile[] = "manifest.json";

// NotFound or Unavailable, naming the file and the system's reason.
absl::StatusOr<std::string> ReadPackageFile(const std::string& path);

// A 64-bit sum over bytes (FNV-1a over 8-byte words): finds damage, not malice.
uint64_t ChecksumOfBytes(std::string_view bytes);

// What went wrong when writing to a path, by errno: ResourceExhausted when the disk is full, else Unavailable.
absl::Status PackageWriteError(const std::string& path, int error);

// A package being written, which appears at its destination whole, or not at all.
class PackageWriter {
 public:
  virtual ~PackageWriter() = default;
  // Writes a file of the package, with the folders in its name. ResourceExhausted when the disk is full.
  virtual absl::Status Write(const std::string& name, const std::string& contents) = 0;
  // Puts the package at its destination; an older one there is replaced in one step. Once, at the end.
  virtual absl::Status Commit() = 0;
};

// A folder being written beside its destination.
//   ASSIGN_OR_RETURN(PackageFolder folder, PackageFolder::Create(dir));
//   RETURN_IF_ERROR(folder.Write("manifest.json", text));
//   RETURN_IF_ERROR(folder.Commit());
// Removed by the destructor unless committed. Errors name the path and how to fix it.
class PackageFolder : public PackageWriter {
 public:
  // FailedPrecondition when `dir` is a file, or a folder with anything in it but a package (a manifest.json with our
  // format name, and the other parts). Missing parents are made.
  static absl::StatusOr<PackageFolder> Create(const std::string& dir);
  PackageFolder(PackageFolder&& other) noexcept;
  PackageFolder& operator=(PackageFolder&&) = delete;
  ~PackageFolder() override;

  absl::Status Write(const std::string& name, const std::string& contents) override;
  absl::Status Commit() override;

 private:
  PackageFolder(std::string destination, std::string temporary);
  std::string destination_, temporary_;
};

}  // namespace diapason
