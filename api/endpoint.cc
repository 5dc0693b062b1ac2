#include "api/endpoint.h"

#include <vector>

#include "absl/strings/str_split.h"
#include "base/check.h"
#include "worker/rpc/address.h"
#include "worker/rpc/tokens.h"

namespace diapason::api {

absl::StatusOr<std::shared_ptr<const ClientCredentials>> CredentialsFor(const std::string& flag,
                                                                        const Endpoint& endpoint) {
  const TlsFiles tls{endpoint.tls_cert, endpoint.tls_key, endpoint.tls_ca};
  for (const std::string& address : std::vector<std::string>(absl::StrSplit(endpoint.address, ','))) {
    RETURN_IF_ERROR(CheckAddress(flag, address));
    RETURN_IF_ERROR(CheckPlainText(flag, address, endpoint.insecure || tls.given()));
  }
  auto credentials = std::make_shared<ClientCredentials>();
  if (tls.given()) {
    ASSIGN_OR_RETURN(credentials->tls, LoadTls(tls, {.allow_no_role = endpoint.allow_no_role}));
  }
  if (!endpoint.token_file.empty()) {
    ASSIGN_OR_RETURN(credentials->token, LoadToken(endpoint.token_file));
  }
  return credentials;
}

absl::StatusOr<std::unique_ptr<ServiceClient>> ConnectService(const Endpoint& service, double patience) {
  ServiceClientOptions options;
  ASSIGN_OR_RETURN(options.credentials, CredentialsFor("--service", service));
  options.give_up_seconds = patience;
  return ServiceClient::Connect(service.address, options);
}

}  // namespace diapason::api
