#include "worker/security.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>

#include "compiler/tensor/check.h"
#include "worker/tokens.h"

namespace diapason {
namespace {

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* cert) const { X509_free(cert); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> Memory(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> ParseCertificate(const std::string& pem) {
  return Owned<X509>(PEM_read_bio_X509(Memory(pem).get(), nullptr, nullptr, nullptr));
}

absl::StatusOr<std::string> ReadFile(const std::string& flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError("cannot read " + flag + " '" + path + "' (" + std::strerror(errno) + ")");
  }
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Instead of asking for one on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

std::string Day(const ASN1_TIME* time) {
  std::tm parts{};
  char text[16] = "?";
  if (ASN1_TIME_to_tm(time, &parts) == 1) std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

absl::Status CheckDates(const std::string& path, const X509* cert) {
  const std::string mend = ": make a new one, for example with deploy/make-certs.sh";
  if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
    return absl::FailedPreconditionError("the certificate '" + path + "' has expired, on " +
                                         Day(X509_get0_notAfter(cert)) + mend);
  }
  if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) {
    return absl::FailedPreconditionError("the certificate '" + path + "' is not valid before " +
                                         Day(X509_get0_notBefore(cert)) + ": see to this host's clock, or use another");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TlsIdentity> LoadTls(const TlsFiles& files, const std::string& flags) {
  if (files.cert.empty() || files.key.empty() || files.ca.empty()) {
    return absl::InvalidArgumentError(flags + "cert, " + flags + "key and " + flags +
                                      "ca go together: give all three or none");
  }
  TlsIdentity identity;
  ASSIGN_OR_RETURN(identity.cert, ReadFile(flags + "cert", files.cert));
  ASSIGN_OR_RETURN(identity.key, ReadSecretFile(flags + "key", files.key));
  ASSIGN_OR_RETURN(identity.ca, ReadFile(flags + "ca", files.ca));
  const Owned<X509> cert = ParseCertificate(identity.cert);
  if (cert == nullptr) {
    return absl::InvalidArgumentError(flags + "cert '" + files.cert + "' holds no certificate in PEM form");
  }
  if (ParseCertificate(identity.ca) == nullptr) {
    return absl::InvalidArgumentError(flags + "ca '" + files.ca + "' holds no certificate in PEM form");
  }
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(Memory(identity.key).get(), nullptr, NoPassword, nullptr));
  if (key == nullptr) {
    return absl::InvalidArgumentError(flags + "key '" + files.key +
                                      "' holds no private key in PEM form without a password");
  }
  if (X509_check_private_key(cert.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(flags + "key '" + files.key + "' is not the key of the certificate '" +
                                      files.cert + "': give those that belong together");
  }
  RETURN_IF_ERROR(CheckDates(files.cert, cert.get()));
  return identity;
}

}  // namespace diapason
