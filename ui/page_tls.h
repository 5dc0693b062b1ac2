// TLS of the page, as of our gRPC services: both sides show certificates, and files that change are read again.
#pragma once

#include <openssl/ssl.h>

#include "absl/status/status.h"
#include "worker/rpc/security.h"

namespace diapason {

// Sets up the context of a server that shows `identity`, which outlives the context. False: OpenSSL refused.
bool SetUpServerTls(SSL_CTX* context, const TlsIdentity& identity);

// Whether the peer of this connection may look at the page: its certificate has the role client or service, or, with
// allow_no_role, none. PermissionDenied says what is wrong.
absl::Status CheckPeer(const SSL* ssl, const TlsIdentity& identity);

}  // namespace diapason
