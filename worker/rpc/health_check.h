// Asking a tracker or service whether it serves, by the gRPC health protocol (grpc.health.v1.Health), which needs no
// token.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace diapason {

struct ClientCredentials;

// OK when it answers SERVING in time. Unavailable says what it does instead.
absl::Status CheckHealth(const std::string& address, std::chrono::milliseconds timeout,
                         const std::shared_ptr<const ClientCredentials>& credentials);

}  // namespace diapason
