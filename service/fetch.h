// Files of web servers.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace diapason {

// Whether `text` begins as an address of the web does: "http://" or "https://".
bool IsWebAddress(const std::string& text);

// `url` without user and password, for people.
std::string ShownAddress(const std::string& url);

// The content at `url`; redirections are followed unless it has a password. InvalidArgument: no such address; NotFound:
// the server has no such file; Unavailable: it cannot be reached, or its certificate is not trusted; ResourceExhausted:
// more than `most_bytes`. Sentences name the address without user and password.
absl::StatusOr<std::string> FetchUrl(const std::string& url, size_t most_bytes);

}  // namespace diapason
