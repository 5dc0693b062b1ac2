// --http, of the commands that serve the page.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "cli/service_flags.h"

namespace diapason {

// What to ask of browsers at the address of --http: as ListenWith, and beyond this host a token as well, for which
// PermissionDenied names the flags.
absl::StatusOr<ServerCredentials> ShowPageWith(const std::string& address, const SecurityFlags& flags);

}  // namespace diapason
