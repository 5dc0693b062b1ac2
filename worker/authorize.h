// Tokens at the door of a service, for .cc files that speak gRPC.
#pragma once

#include <grpcpp/impl/codegen/server_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "worker/tokens.h"

namespace diapason {

// Whether the call may be made (Authority::Check). OK for all without an authority. Calls of this very
// process (ServiceHost::in_process) show OwnToken.
inline absl::Status Authorize(const grpc::ServerContextBase& context, const std::shared_ptr<Authority>& authority,
                              Role needed) {
  if (authority == nullptr) return absl::OkStatus();
  const auto header = context.client_metadata().find("authorization");
  std::string token;
  constexpr char kBearer[] = "Bearer ";
  if (header != context.client_metadata().end() && header->second.starts_with(kBearer)) {
    token.assign(header->second.data() + sizeof kBearer - 1, header->second.size() - (sizeof kBearer - 1));
  }
  return authority->Check(token, needed);
}

}  // namespace diapason
