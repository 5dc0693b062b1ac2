// Health check of a tracker or service by the gRPC health protocol (grpc.health.v1.Health), which needs no token.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"

namespace diapason {

struct ClientCredentials;

// OK if the answer is SERVING within `timeout`. Unavailable: any other answer, or none; the message says which.
absl::Status CheckHealth(const std::string& address, std::chrono::milliseconds timeout,
                         const std::shared_ptr<const ClientCredentials>& credentials);

}  // namespace diapason
