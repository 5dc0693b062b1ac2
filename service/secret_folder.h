// Files with credentials for workers that are started elsewhere, on a file system that they see too.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace diapason {

struct LaunchSecret;

// The folder BASE/diapason-LABEL: of mode 700, with files of mode 600. One process at a time uses it; what an earlier
// one left there is replaced, or removed. Errors name the folder and how to fix it, and never what is in it:
// PermissionDenied for a folder of that name that belongs to somebody else, FailedPrecondition for the rest.
class SecretFolder {
 public:
  // `base`: a relative path is one below this process' folder.
  SecretFolder(const std::string& base, const std::string& label);
  const std::string& path() const { return path_; }

  // Whether Write can make the folder, or use the one that is there. Nothing changes.
  absl::Status Check() const;
  // Writes a file for each, in place of what is there; no reader sees half of one. Without secrets: does nothing.
  absl::Status Write(const std::vector<LaunchSecret>& secrets) const;
  // The folder and its files; OK when there is none of ours.
  absl::Status Remove() const;

 private:
  const std::string base_, path_;
};

}  // namespace diapason
