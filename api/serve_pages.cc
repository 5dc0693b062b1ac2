#include <memory>
#include <string>
#include <utility>

#include "api/page_sources.h"
#include "api/server_parts.h"
#include "base/check.h"
#include "diapason/servers.h"
#include "ui/page_server.h"

namespace diapason::api {
namespace {

absl::StatusOr<std::unique_ptr<PageServer>> StartPageAt(const std::string& address, const PageOptions& given) {
  ListenOptions http = given.http;
  http.address = address;
  ::diapason::PageOptions options;
  options.address = address;
  ASSIGN_OR_RETURN(options.credentials, CredentialsForPage(http));
  options.history = given.history;
  options.explain = ExplainApart(given.history);
  return PageServer::Start(std::move(options));
}

}  // namespace

absl::Status ServePages(const PageOptions& options) {
  const std::string& address = options.http.address;
  absl::StatusOr<std::unique_ptr<PageServer>> server = StartPageAt(address.empty() ? kPageAddress : address, options);
  // Somebody else's program, or another page, has the usual port.
  if (address.empty() && absl::IsUnavailable(server.status())) server = StartPageAt("127.0.0.1:0", options);
  RETURN_IF_ERROR(server.status());
  if (options.on_listen) options.on_listen((*server)->url());
  WaitForStop(options.hooks);
  return absl::OkStatus();
}

}  // namespace diapason::api
