// A file's whole contents.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace diapason {

// NotFound where there is no such file, else Unavailable, with the system's reason alone as the message ("No such file
// or directory", "Is a directory"): the caller says what the file is and what to do.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);
// The same, with the message "cannot read WHAT 'PATH' (REASON)".
absl::StatusOr<std::string> ReadNamedFile(const std::string& what, const std::string& path);
// The error of ReadWholeFile for an `errno`.
absl::Status UnreadableFile(int error);

}  // namespace diapason
