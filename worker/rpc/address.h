// Addresses as users write them, and whether plain text may leave this host for them.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace diapason {

// "HOST:PORT", the host in brackets when it is an IPv6 address. InvalidArgument names the flag, the text and the form.
absl::Status CheckAddress(const std::string& flag, const std::string& address);
// Whether only this host reaches what listens at the address, which is checked.
bool IsLoopback(const std::string& address);
// Plain text leaves this host only when the user says so. PermissionDenied names the flag, the address, which is
// checked, and how to fix it. `allowed`: it was said, or the connection has TLS.
absl::Status CheckPlainText(const std::string& flag, const std::string& address, bool allowed);

}  // namespace diapason
