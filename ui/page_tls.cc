#include "ui/page_tls.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "worker/rpc/tls_watch.h"

namespace diapason {
namespace {

template <auto free>
struct Free {
  template <typename T>
  void operator()(T* pointer) const {
    free(pointer);
  }
};
using BioPtr = std::unique_ptr<BIO, Free<BIO_free_all>>;
using X509Ptr = std::unique_ptr<X509, Free<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using StorePtr = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;

BioPtr Reader(const std::string& text) { return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

X509Ptr NextCertificate(BIO* bio) { return X509Ptr(PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)); }

// The certificate with those that lead to its authority, and the key.
bool UseIdentity(SSL* ssl, const TlsIdentity& identity) {
  const BioPtr certificates = Reader(identity.cert), keys = Reader(identity.key);
  const X509Ptr own = NextCertificate(certificates.get());
  const KeyPtr key(PEM_read_bio_PrivateKey(keys.get(), nullptr, nullptr, nullptr));
  if (own == nullptr || key == nullptr || SSL_use_certificate(ssl, own.get()) != 1 ||
      SSL_use_PrivateKey(ssl, key.get()) != 1 || SSL_clear_chain_certs(ssl) != 1) {
    return false;
  }
  while (const X509Ptr next = NextCertificate(certificates.get()))
    if (SSL_add1_chain_cert(ssl, next.get()) != 1) return false;
  return true;
}

bool UseAuthority(SSL* ssl, const TlsIdentity& identity) {
  const StorePtr store(X509_STORE_new());
  const BioPtr bio = Reader(identity.ca);
  int added = 0;
  while (const X509Ptr next = NextCertificate(bio.get())) added += X509_STORE_add_cert(store.get(), next.get());
  SSL_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return added > 0 && SSL_set1_verify_cert_store(ssl, store.get()) == 1;
}

// For each connection, so that it shows what is in use at that moment.
int ChooseCertificate(SSL* ssl, void* identity) {
  const TlsIdentity now = TlsWatch::InUse(*static_cast<const TlsIdentity*>(identity));
  return UseIdentity(ssl, now) && UseAuthority(ssl, now) ? 1 : 0;
}

std::string Pem(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509(bio.get(), certificate) != 1) return "";
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

}  // namespace

bool SetUpServerTls(SSL_CTX* context, const TlsIdentity& identity) {
  constexpr unsigned char kSessions[] = "diapason page";
  SSL_CTX_set_cert_cb(context, &ChooseCertificate, const_cast<TlsIdentity*>(&identity));
  // No session outlives its connection: a peer whose certificate is no longer accepted is refused at its next one.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) == 1 &&
         SSL_CTX_set_session_id_context(context, kSessions, sizeof kSessions - 1) == 1;
}

absl::Status CheckPeer(const SSL* ssl, const TlsIdentity& identity) {
  const X509Ptr certificate(ssl == nullptr ? nullptr : SSL_get1_peer_certificate(ssl));
  if (certificate == nullptr) return absl::PermissionDeniedError("no certificate came with the connection");
  const std::optional<PeerRole> role = RoleOfCertificate(Pem(certificate.get()));
  if (!role.has_value() && identity.allow_no_role) return absl::OkStatus();
  if (!role.has_value()) {
    return absl::PermissionDeniedError(
        "the browser's certificate has no role: make a new one with deploy/make-certs.sh");
  }
  if (*role == PeerRole::kClient || *role == PeerRole::kService) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the browser's certificate has the role ", PeerRoleName(*role),
                                                  ", and the page is for the role client or service: make one of "
                                                  "that role with deploy/make-certs.sh"));
}

}  // namespace diapason
