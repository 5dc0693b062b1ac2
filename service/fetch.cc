#include "service/fetch.h"

#include <httplib.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

constexpr time_t kConnectSeconds = 10, kReadSeconds = 30;

struct Address {
  std::string server;  // "https://host:port"
  std::string user, password;
  std::string path;  // "/records.jsonl?x=1"
  std::string shown() const { return absl::StrCat(server, path); }
};

absl::StatusOr<Address> Split(const std::string& url) {
  const size_t begin = url.find("://") + 3;
  const size_t slash = std::min(url.find_first_of("/?#", begin), url.size());
  std::string authority = url.substr(begin, slash - begin);
  Address address;
  if (const size_t at = authority.rfind('@'); at != std::string::npos) {
    const std::string user = authority.substr(0, at);
    const size_t colon = std::min(user.find(':'), user.size());
    address.user = user.substr(0, colon);
    address.password = colon < user.size() ? user.substr(colon + 1) : "";
    authority.erase(0, at + 1);
  }
  address.server = absl::StrCat(url.substr(0, begin), authority);
  address.path = url.substr(slash, url.find('#', slash) - slash);
  if (address.path.empty() || address.path.front() != '/') address.path = absl::StrCat("/", address.path);
  if (authority.empty() || authority.find_first_of(" \t\r\n") != std::string::npos)
    return absl::InvalidArgumentError(
        absl::StrCat("'", address.shown(), "' names no server; write it as in https://host/records.jsonl"));
  return address;
}

absl::Status StatusError(const Address& address, int status, const std::string& location) {
  if (status / 100 == 3)
    return absl::UnavailableError(absl::StrCat(address.shown(), " leads to ", ShownAddress(location),
                                               ", which is not followed with a password; name that address"));
  const std::string text = absl::StrCat(address.shown(), " cannot be read: the server answered with status ", status);
  if (status == 404 || status == 410) return absl::NotFoundError(absl::StrCat(text, "; check the address"));
  if (status == 401 || status == 403)
    return absl::PermissionDeniedError(
        absl::StrCat(text, "; give user and password as in https://user:password@host/"));
  return absl::UnavailableError(absl::StrCat(text, "; try again later, or download the file and name it"));
}

}  // namespace

bool IsWebAddress(const std::string& text) {
  return absl::StartsWith(text, "http://") || absl::StartsWith(text, "https://");
}

std::string ShownAddress(const std::string& url) {
  if (!IsWebAddress(url)) return url;
  const absl::StatusOr<Address> address = Split(url);
  return address.ok() ? address->shown() : url;
}

absl::StatusOr<std::string> FetchUrl(const std::string& url, size_t most_bytes) {
  if (!IsWebAddress(url))
    return absl::InvalidArgumentError(absl::StrCat("'", url, "' is no address; it begins with http:// or https://"));
  const absl::StatusOr<Address> address = Split(url);
  if (!address.ok()) return address.status();
  httplib::Client client(address->server);
  if (!client.is_valid())
    return absl::InvalidArgumentError(absl::StrCat("'", address->shown(), "' is no address of a server"));
  client.set_follow_location(address->user.empty());  // else the password would go wherever the server says
  client.set_connection_timeout(kConnectSeconds);
  client.set_read_timeout(kReadSeconds);
  if (!address->user.empty()) client.set_basic_auth(address->user, address->password);
  std::string content;
  bool too_long = false;
  int status = 0;
  const httplib::Result result = client.Get(
      address->path,
      [&](const httplib::Response& response) {
        status = response.status;
        return true;
      },
      [&](const char* data, size_t size) {
        if (status != 200) return true;  // a page that says why
        too_long = size > most_bytes - content.size();
        if (!too_long) content.append(data, size);
        return !too_long;
      });
  if (too_long)
    return absl::ResourceExhaustedError(absl::StrCat(address->shown(), " is larger than ", most_bytes >> 20,
                                                     " MiB, which no file of records is; check the address"));
  if (!result)
    return absl::UnavailableError(absl::StrCat(address->shown(), " cannot be read (",
                                               httplib::to_string(result.error()),
                                               "); check the address, or download the file and name it"));
  if (result->status != 200) return StatusError(*address, result->status, result->get_header_value("Location"));
  return content;
}

}  // namespace diapason
