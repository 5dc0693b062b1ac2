// A file in memory without a copy of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace diapason {

// Its pages are read when they are first looked at, and are the system's to drop and read again. The file must not
// become shorter meanwhile; replacing it by another one (rename) is harmless.
class MappedFile {
 public:
  // InvalidArgument where it is no regular file. Other errors as ReadWholeFile (read_file.h), with the system's reason
  // alone.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::string_view bytes) : bytes_(bytes) {}

  const std::string_view bytes_;
};

}  // namespace diapason
