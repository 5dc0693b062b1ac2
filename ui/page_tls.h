// Mutual TLS for the page, as for the gRPC services; certificates are reloaded when their files change.
#pragma once

#include <openssl/ssl.h>

#include "absl/status/status.h"
#include "worker/rpc/security.h"

namespace diapason {

// Configures the context of a server with the certificate of `identity`. Returns false if OpenSSL fails. REQUIRES:
// `identity` outlives the context.
bool SetUpServerTls(SSL_CTX* context, const TlsIdentity& identity);

// OK if the client of this connection may read the page: its certificate has the role client or service or, with
// allow_no_role, none. PermissionDenied has the reason.
absl::Status CheckPeer(const SSL* ssl, const TlsIdentity& identity);

}  // namespace diapason
