// Bearer tokens and what they allow. A file has a line for each:
//
//   # role     token                             name, for logs and messages
//   worker     q3Zf0nYwK1bXc8aRt5sVu2eJ          rack-a
//   submitter  kT9wq2LmN7pXs4dFg6hJz1cV          alice
//
// A token is at least 16 letters, digits, '-', '_', '.' or '='. Lines are read again when the file changes: a token is
// given or taken back without a restart.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace diapason {

enum class Role : uint8_t {
  kReader,     // jobs, records and the fleet, to look at
  kSubmitter,  // and measurements and jobs
  kWorker,     // registers devices, and nothing else
  kAdmin,      // everything
};
const char* RoleName(Role role);

// The tokens of a service. Safe from any thread.
class Authority {
 public:
  // NotFound, PermissionDenied: the file cannot be read, or others than its owner may. InvalidArgument names file and
  // line.
  static absl::StatusOr<std::unique_ptr<Authority>> Load(const std::string& path);

  // Whether who sends this token may make a call that is for `needed`; OwnToken may make all. Unauthenticated without a
  // known token, PermissionDenied for one of another role; no message tells a token. `owner`: the token's name, where
  // it is known; for quotas.
  absl::Status Check(const std::string& token, Role needed, std::string* owner = nullptr);

 private:
  struct Owner {
    Role role;
    std::string name;
  };
  using Owners = std::map<std::string, Owner>;  // by SHA-256 of the token: looking one up tells nothing by its time

  explicit Authority(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<Owners> Parse(const std::string& path, const std::string& text);
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadAgainIfChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Mutex mutex_;
  Owners owners_ ABSL_GUARDED_BY(mutex_);
  std::pair<int64_t, int64_t> stamp_
      ABSL_GUARDED_BY(mutex_){};                   // of the file that was read: time of change in nanoseconds, and size
  int64_t looked_at_ ABSL_GUARDED_BY(mutex_) = 0;  // steady seconds
};

// The token of calls that this process makes to itself: random, made when first asked for, never stored nor sent by a
// socket.
const std::string& OwnToken();

// The only token of a file, for who connects. Errors as Authority::Load; they name `flag`.
absl::StatusOr<std::string> LoadToken(const std::string& path, const std::string& flag = "--token-file");

// A file that is a secret: NotFound, or PermissionDenied when others than its owner may read it. `what`: how messages
// begin.
absl::StatusOr<std::string> ReadSecretFile(const std::string& what, const std::string& path);

}  // namespace diapason
