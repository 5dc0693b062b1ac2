#include "cli/page_flags.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "worker/rpc/address.h"

namespace diapason {

absl::StatusOr<ServerCredentials> ShowPageWith(const std::string& address, const SecurityFlags& flags) {
  RETURN_IF_ERROR(CheckAddress("--http", address));
  if (flags.tokens.empty() && !IsLoopback(address)) {
    return absl::PermissionDeniedError(
        absl::StrCat("--http ", address,
                     " would show the history to every host that can reach it; give --tokens with "
                     "a file of tokens, or an address of this host alone such as 127.0.0.1:8085"));
  }
  return ListenWith("--http", address, flags);
}

}  // namespace diapason
