// Credentials with which processes authenticate to each other: certificates (mutual TLS) and bearer tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

class Authority;

// PEM files; all three or none.
struct TlsFiles {
  std::string cert, key, ca;
  bool given() const { return !cert.empty() || !key.empty() || !ca.empty(); }
};

// The role of a certificate's holder, by the URI "urn:diapason:role:NAME" among its alternative names. A certificate of
// one role is of no use for another: a worker's cannot pose as a tracker, to which others send their tokens.
enum class PeerRole : uint8_t {
  kTracker,  // listens
  kService,  // listens, and connects to a tracker
  kWorker,   // connects
  kClient,   // connects: people and their commands
};
const char* PeerRoleName(PeerRole role);
// Of a certificate with these URIs; none when it has none, or several.
std::optional<PeerRole> RoleOfUris(const std::vector<std::string>& uris);
// Of the first certificate of a PEM text.
std::optional<PeerRole> RoleOfCertificate(const std::string& pem);

// What the files hold. Clients and servers each present a certificate, which must be signed by one of the other's `ca`.
// (Mutual TLS.)
struct TlsIdentity {
  std::string cert, key, ca;
  TlsFiles files;        // read again while the process runs (worker/rpc/tls_watch.h); empty: never
  bool listens = false;  // TlsUse::listens
  // Peers may show certificates without a role, as deploy/make-certs.sh once made them.
  bool allow_no_role = false;
  bool any_name = false;  // of the peer: for a process that connects to its own port
};

struct TlsUse {
  std::string flags = "--tls-";  // and cert, key, ca: for messages
  bool listens = false;          // so that the certificate must have the role tracker or service
  bool allow_no_role = false;
};

// Reads them and checks what a handshake would report unclearly: a file that is missing or of no certificate, a key
// that is another certificate's or readable by others, a certificate that has expired, is not valid yet or has the
// wrong role. Each error names the file, its flag and how to fix it.
absl::StatusOr<TlsIdentity> LoadTls(const TlsFiles& files, const TlsUse& use = {});

// When the first certificate of a PEM text expires, in Unix seconds; 0 when it has none.
double CertificateExpiry(const std::string& pem);
// The day, "2027-01-31".
std::string ExpiryDay(const std::string& pem);

// Of a process that connects. Without TLS: plain text.
struct ClientCredentials {
  std::optional<TlsIdentity> tls;
  std::string token;  // empty: none
};

// Of a process that listens.
struct ServerCredentials {
  std::optional<TlsIdentity> tls;
  std::shared_ptr<Authority> authority;  // null: anyone who can connect may do anything
};

}  // namespace diapason
