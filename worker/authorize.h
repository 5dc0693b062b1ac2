// Tokens at the door of a service, for .cc files that speak gRPC.
#pragma once

#include <grpcpp/impl/codegen/server_context.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "worker/tokens.h"

namespace diapason {

// The token that came with the call; empty: none.
inline std::string TokenOf(const grpc::ServerContextBase& context) {
  const auto header = context.client_metadata().find("authorization");
  constexpr char kBearer[] = "Bearer ";
  if (header == context.client_metadata().end() || !header->second.starts_with(kBearer)) return "";
  return std::string(header->second.data() + sizeof kBearer - 1, header->second.size() - (sizeof kBearer - 1));
}

// Whose token it is, for quotas; empty where there are no tokens, and for calls of this very process.
inline std::string OwnerOf(const grpc::ServerContextBase& context, const std::shared_ptr<Authority>& authority) {
  if (authority == nullptr) return "";
  return authority->OwnerOf(TokenOf(context));
}

// Whether the call may be made (Authority::Check). OK for all without an authority. Calls of this very
// process (ServiceHost::in_process) show OwnToken.
inline absl::Status Authorize(const grpc::ServerContextBase& context, const std::shared_ptr<Authority>& authority,
                              Role needed) {
  if (authority == nullptr) return absl::OkStatus();
  return authority->Check(TokenOf(context), needed);
}

}  // namespace diapason
