// Reading whole files.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace diapason {

// NotFound if the file does not exist, Unavailable for other errors. The message is only the system's reason ("No such
// file or directory", "Is a directory"); the caller adds what the file is and what to do.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);
// The same, with the message "cannot read WHAT 'PATH' (REASON)".
absl::StatusOr<std::string> ReadNamedFile(const std::string& what, const std::string& path);
// The error of ReadWholeFile for an `errno`.
absl::Status UnreadableFile(int error);

}  // namespace diapason
