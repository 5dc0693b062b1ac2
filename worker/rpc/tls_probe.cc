#include "worker/rpc/tls_probe.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "worker/rpc/openssl_owned.h"
#include "worker/rpc/tls_watch.h"

namespace diapason {
namespace {

constexpr timeval kPatience{2, 0};

class Socket {
 public:
  // Connected to the first of the host's addresses that answers.
  Socket(const std::string& host, const std::string& port) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int wrong = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); wrong != 0) {
      why_ = gai_strerror(wrong);
      return;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
    for (const addrinfo* one = all.get(); one != nullptr && fd_ < 0; one = one->ai_next) {
      const int fd = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0);
      if (fd < 0) continue;
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
      setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);  // of connect too
      if (connect(fd, one->ai_addr, one->ai_addrlen) == 0) {
        fd_ = fd;
      } else {
        why_ = std::strerror(errno);
        close(fd);
      }
    }
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  // Why it is not connected.
  const std::string& why() const { return why_; }

 private:
  int fd_ = -1;
  std::string why_;
};

void Show(SSL_CTX* context, const TlsIdentity& identity) {
  auto memory = [](const std::string& text) {
    return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  };
  const Owned<BIO> cert = memory(identity.cert), key = memory(identity.key), ca = memory(identity.ca);
  const Owned<X509> shown(PEM_read_bio_X509(cert.get(), nullptr, nullptr, nullptr));
  SSL_CTX_use_certificate(context, shown.get());
  while (const Owned<X509> next{PEM_read_bio_X509(cert.get(), nullptr, nullptr, nullptr)})
    SSL_CTX_add1_chain_cert(context, next.get());
  const Owned<EVP_PKEY> read(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
  SSL_CTX_use_PrivateKey(context, read.get());
  while (const Owned<X509> next{PEM_read_bio_X509(ca.get(), nullptr, nullptr, nullptr)})
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context), next.get());
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
}

// What the role of the peer's certificate is not for; empty when it is a tracker's or a service's.
std::string WrongRole(SSL* ssl, bool allow_no_role) {
  const Owned<BIO> text(BIO_new(BIO_s_mem()));
  const X509* cert = SSL_get0_peer_certificate(ssl);
  char* data = nullptr;
  if (cert == nullptr || PEM_write_bio_X509(text.get(), cert) != 1) return "";
  const long size = BIO_get_mem_data(text.get(), &data);
  const std::optional<PeerRole> role = RoleOfCertificate(std::string(data, static_cast<size_t>(size)));
  if (!role.has_value() && allow_no_role) return "";
  if (!role.has_value()) {
    return "shows a certificate without a role: make it a new one with deploy/make-certs.sh, or add "
           "--tls-allow-no-role here "
           "until all certificates of the fleet are replaced";
  }
  if (*role == PeerRole::kTracker || *role == PeerRole::kService) return "";
  return std::string("shows a certificate of the role ") + PeerRoleName(*role) +
         ", which is none of a tracker or service: do not trust it, or make it one of these with deploy/make-certs.sh";
}

// Since it was loaded: one that had expired by then is not taken.
bool HasExpired(const TlsIdentity& identity) {
  const Owned<BIO> text(BIO_new_mem_buf(identity.cert.data(), static_cast<int>(identity.cert.size())));
  const Owned<X509> cert(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr));
  return cert != nullptr && X509_cmp_current_time(X509_get0_notAfter(cert.get())) < 0;
}

std::string WrongCertificate(long verdict, const std::string& host) {
  switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "shows a certificate that has expired: make it a new one, for example with deploy/make-certs.sh";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "shows a certificate that is not valid yet: see to the clocks of both hosts";
    case X509_V_ERR_INVALID_PURPOSE:
      return "shows a certificate that is not for servers, perhaps another peer's: do not trust it, or make it one of "
             "the "
             "role tracker or service with deploy/make-certs.sh";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "shows a certificate for other names than '" + host +
             "': connect to it by a name that its certificate has, or make one for this name";
    default:
      return "shows a certificate that the authority in --tls-ca did not sign: give the certificate of the authority "
             "that did";
  }
}

}  // namespace

std::string WhatIsWrongWithTls(const std::string& address, const ClientCredentials& given, std::string& no_connection) {
  no_connection.clear();
  ClientCredentials credentials = given;
  if (given.tls.has_value()) credentials.tls = TlsWatch::InUse(*given.tls);
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || address.rfind("unix:", 0) == 0) return "";
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const Socket socket(host, address.substr(colon + 1));
  if (socket.fd() < 0) {
    no_connection = socket.why();
    return "";
  }

  ERR_clear_error();
  const Owned<SSL_CTX> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return "";
  if (credentials.tls.has_value()) Show(context.get(), *credentials.tls);
  const Owned<SSL> ssl(SSL_new(context.get()));
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str()) != 1) {
    SSL_set1_host(ssl.get(), host.c_str());
    SSL_set_tlsext_host_name(ssl.get(), host.c_str());
  }
  SSL_set_fd(ssl.get(), socket.fd());
  ERR_clear_error();
  errno = 0;
  const int connected = SSL_connect(ssl.get());
  const bool shaken = connected == 1;
  // No answer in time, as on a network that loses packets, says nothing of the peer.
  if (!shaken && (errno == EAGAIN || SSL_get_error(ssl.get(), connected) == SSL_ERROR_WANT_READ)) return "";
  if (!credentials.tls.has_value()) return shaken ? "speaks TLS: give --tls-cert, --tls-key and --tls-ca" : "";
  if (!shaken) {
    const long verdict = SSL_get_verify_result(ssl.get());
    if (verdict != X509_V_OK) return WrongCertificate(verdict, host);
    if (SSL_get0_peer_certificate(ssl.get()) == nullptr) {
      return "does not speak TLS: start it with --tls-cert, --tls-key and --tls-ca, or leave them out here";
    }
  }
  if (shaken) {
    const std::string wrong = WrongRole(ssl.get(), credentials.tls->allow_no_role);
    if (!wrong.empty()) return wrong;
  }
  // It judges our certificate after the handshake (TLS 1.3), and speaks first when it likes it.
  char byte = 0;
  if (shaken && SSL_read(ssl.get(), &byte, 1) == 1) return "";
  if (HasExpired(*credentials.tls)) {
    return "does not accept the certificate given with --tls-cert, which has expired: make a new one, for example with "
           "deploy/make-certs.sh, and start again with it";
  }
  return "does not accept the certificate given with --tls-cert: give one that the authority in its --tls-ca signed";
}

}  // namespace diapason
