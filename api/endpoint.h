// How the library connects to trackers and services.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "diapason/model.h"
#include "service/service_client.h"
#include "worker/rpc/security.h"

namespace diapason::api {

// What to present at the endpoint's addresses. InvalidArgument, PermissionDenied name the option that gives them
// ("--service"); other errors: of certificates and tokens.
absl::StatusOr<std::shared_ptr<const ClientCredentials>> CredentialsFor(const std::string& flag,
                                                                        const Endpoint& endpoint);
// A service (`--service`); `patience`: ServiceClientOptions::give_up_seconds. Errors as CredentialsFor and
// ServiceClient::Connect.
absl::StatusOr<std::unique_ptr<ServiceClient>> ConnectService(const Endpoint& service, double patience = 0);

}  // namespace diapason::api
