// Why two peers do not understand each other. gRPC says of a failed handshake little more than that it failed.
#pragma once

#include <string>

#include "worker/rpc/security.h"

namespace diapason {

// Tries a handshake with who listens at HOST:PORT and tells what goes wrong, as the rest of a sentence that begins with
// "the tracker at ...": "shows a certificate that has expired: ...". Empty when certificates are not the reason, or
// nobody listens: then `no_connection` says why ("Connection refused"). Takes a few seconds at most.
std::string WhatIsWrongWithTls(const std::string& address, const ClientCredentials& credentials,
                               std::string& no_connection);

}  // namespace diapason
