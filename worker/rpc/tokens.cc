#include "worker/rpc/tokens.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <sstream>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/read_file.h"
#include "worker/rpc/log.h"

namespace diapason {
namespace {

constexpr size_t kShortestToken = 16;
constexpr const char* kRoleNames[] = {"reader", "submitter", "worker", "admin"};

std::optional<Role> ParseRole(const std::string& text) {
  for (int i = 0; i < 4; ++i) {
    if (text == kRoleNames[i]) return static_cast<Role>(i);
  }
  return std::nullopt;
}

bool IsToken(const std::string& text) {
  auto allowed = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("-_.=", c); };
  return text.size() >= kShortestToken && std::all_of(text.begin(), text.end(), allowed);
}

std::string Sum(const std::string& token) {
  std::string sum(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         reinterpret_cast<unsigned char*>(sum.data()));
  return sum;
}

bool Allows(Role role, Role needed) {
  if (role == Role::kAdmin || role == needed) return true;
  return role == Role::kSubmitter && needed == Role::kReader;
}

int64_t SteadySeconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::pair<int64_t, int64_t> StampOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return {};
  return {int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec, info.st_size};
}

}  // namespace

const char* RoleName(Role role) { return kRoleNames[static_cast<int>(role)]; }

absl::StatusOr<std::string> ReadSecretFile(const std::string& what, const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError("cannot read " + what + " '" + path + "' (" + std::strerror(errno) + ")");
  }
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(what + " '" + path + "' may be read by others than its owner: chmod 600 " +
                                       path);
  }
  return ReadNamedFile(what, path);
}

absl::StatusOr<Authority::Owners> Authority::Parse(const std::string& path, const std::string& text) {
  Owners owners;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string role, token, name, more;
    if (!(words >> role) || role[0] == '#') continue;
    words >> token >> name;
    const std::optional<Role> parsed = ParseRole(role);
    if (!parsed.has_value() || !IsToken(token) || words >> more) {
      return absl::InvalidArgumentError("--tokens '" + path + "', line " + std::to_string(number) +
                                        ": write ROLE TOKEN [NAME], with one of the roles reader, submitter, worker "
                                        "and admin, and a token of at least 16 letters and digits");
    }
    if (name.empty()) name = "line " + std::to_string(number);
    if (!owners.emplace(Sum(token), Owner{*parsed, name}).second) {
      return absl::InvalidArgumentError("--tokens '" + path + "', line " + std::to_string(number) +
                                        ": this token is in a line before; give each once");
    }
  }
  if (owners.empty()) return absl::InvalidArgumentError("--tokens '" + path + "' holds no token");
  return owners;
}

absl::Status Authority::Read() {
  stamp_ = StampOf(path_);
  looked_at_ = SteadySeconds();
  ASSIGN_OR_RETURN(const std::string text, ReadSecretFile("--tokens", path_));
  ASSIGN_OR_RETURN(owners_, Parse(path_, text));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Authority>> Authority::Load(const std::string& path) {
  std::unique_ptr<Authority> authority(new Authority(path));
  MutexLock lock(authority->mutex_);
  if (absl::Status status = authority->Read(); !status.ok()) return status;
  return authority;
}

// A file that cannot be read now leaves the tokens as they were: half a file is none that its owner meant.
void Authority::ReadAgainIfChanged() {
  if (SteadySeconds() == looked_at_) return;
  looked_at_ = SteadySeconds();
  if (StampOf(path_) == stamp_) return;
  const absl::Status status = Read();
  if (status.ok()) {
    LogEvent(LogLevel::kInfo, "tokens_read_again", {{"tokens", std::to_string(owners_.size())}});
  } else {
    LogEvent(LogLevel::kError, "tokens_not_read", {{"why", std::string(status.message())}});
  }
}

const std::string& OwnToken() {
  static const std::string& token = *new std::string([] {
    unsigned char bytes[32];
    DIAPASON_CHECK(RAND_bytes(bytes, sizeof bytes) == 1);
    return absl::BytesToHexString({reinterpret_cast<const char*>(bytes), sizeof bytes});
  }());
  return token;
}

absl::Status Authority::Check(const std::string& token, Role needed, std::string* name) {
  if (token.size() == OwnToken().size() && CRYPTO_memcmp(token.data(), OwnToken().data(), token.size()) == 0)
    return absl::OkStatus();
  MutexLock lock(mutex_);
  ReadAgainIfChanged();
  if (token.empty()) return absl::UnauthenticatedError("no token came with the call: give one with --token-file");
  const auto owner = owners_.find(Sum(token));
  if (owner == owners_.end()) {
    return absl::UnauthenticatedError(
        "the token is none of those accepted here: ask for one and give it with --token-file");
  }
  if (name != nullptr) *name = owner->second.name;
  const Role role = owner->second.role;
  if (Allows(role, needed)) return absl::OkStatus();
  return absl::PermissionDeniedError("the token of '" + owner->second.name + "' has the role " + RoleName(role) +
                                     ", and this call is for the role " + RoleName(needed) +
                                     ": ask for a token of that role");
}

absl::StatusOr<std::string> LoadToken(const std::string& path, const std::string& flag) {
  ASSIGN_OR_RETURN(const std::string text, ReadSecretFile(flag, path));
  std::istringstream words(text);
  std::string token, more;
  if (!(words >> token) || words >> more || !IsToken(token)) {
    return absl::InvalidArgumentError(flag + " '" + path +
                                      "' is to hold one token, of at least 16 letters and digits, and nothing else");
  }
  return token;
}

}  // namespace diapason
