// TLS on both sides, for .cc files that speak gRPC. Files of certificates are read again when they change, within some
// three seconds and for new connections (worker/rpc/tls_watch.h).
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "worker/rpc/security.h"

namespace diapason {

// Of who connects: peers without a certificate of the role tracker or service are left before anything is sent to them.
std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const TlsIdentity& identity);

// Of who listens: peers show a certificate that the authority signed. Its role is checked by each call
// (worker/rpc/call_gate.h).
std::shared_ptr<grpc::ServerCredentials> ServerTls(const TlsIdentity& identity);

}  // namespace diapason
