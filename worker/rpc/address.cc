#include "worker/rpc/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

std::optional<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort parts{address.substr(0, colon), 0};
  const std::string port = address.substr(colon + 1);
  const bool digits = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &parts.port) || parts.port > 65535) return std::nullopt;
  const bool bracketed = parts.host.front() == '[' && parts.host.back() == ']';
  if (parts.host.find(':') != std::string::npos && !bracketed) return std::nullopt;
  if (parts.host.find_first_of(" /,") != std::string::npos) return std::nullopt;
  return parts;
}

}  // namespace

absl::Status CheckAddress(const std::string& flag, const std::string& address) {
  if (SplitAddress(address).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", address.empty() ? "\"\"" : address,
                   " is not understood; write it as HOST:PORT, for example 127.0.0.1:9190"));
}

// By the address itself: a name may lead anywhere, whatever it begins with. "localhost" is loopback by RFC 6761.
bool IsLoopback(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (host.size() < 2 || host.front() != '[' || host.back() != ']') return false;
  host = host.substr(1, host.size() - 2);
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

absl::Status CheckPlainText(const std::string& flag, const std::string& address, bool allowed) {
  if (allowed || IsLoopback(address)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(flag, " ", address,
                   " would speak plain text beyond this host; give --tls-cert, --tls-key and --tls-ca, or add "
                   "--insecure if every host that can reach it is trusted"));
}

}  // namespace diapason
