// What peers show each other: certificates (TLS on both sides) and bearer tokens.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace diapason {

class Authority;

// PEM files; all three or none.
struct TlsFiles {
  std::string cert, key, ca;
  bool given() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// Their contents. `ca` vouches for the peer: clients and servers each show a certificate that the other's `ca` signed.
struct TlsIdentity {
  std::string cert, key, ca;
};

// Reads them and finds what a handshake would only hint at: a file that is missing or of no certificate, a key that is
// another certificate's or readable by others, a certificate that has expired or is not valid yet. Each error names the
// file, its flag (`flags` and cert, key or ca) and the mend.
absl::StatusOr<TlsIdentity> LoadTls(const TlsFiles& files, const std::string& flags = "--tls-");

// Of a process that dials. Without TLS: plain text.
struct ClientCredentials {
  std::optional<TlsIdentity> tls;
  std::string token;  // empty: none
};

// Of a process that listens.
struct ServerCredentials {
  std::optional<TlsIdentity> tls;
  std::shared_ptr<Authority> authority;  // null: whoever can connect may do everything
};

}  // namespace diapason
