#include "worker/rpc/security.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstring>
#include <ctime>

#include "base/check.h"
#include "base/read_file.h"
#include "worker/rpc/openssl_owned.h"
#include "worker/rpc/tokens.h"

namespace diapason {
namespace {

constexpr std::array<const char*, 4> kRoles{"tracker", "service", "worker", "client"};
constexpr char kRoleUri[] = "urn:diapason:role:";

Owned<BIO> Memory(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

Owned<X509> ParseCertificate(const std::string& pem) {
  return Owned<X509>(PEM_read_bio_X509(Memory(pem).get(), nullptr, nullptr, nullptr));
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
  const std::string fix = ": make a new one, for example with deploy/make-certs.sh";
  if (X509_cmp_current_time(X509_get0_notAfter(cert)) < 0) {
    return absl::FailedPreconditionError("the certificate '" + path + "' has expired, on " +
                                         Day(X509_get0_notAfter(cert)) + fix);
  }
  if (X509_cmp_current_time(X509_get0_notBefore(cert)) > 0) {
    return absl::FailedPreconditionError("the certificate '" + path + "' is not valid before " +
                                         Day(X509_get0_notBefore(cert)) + ": see to this host's clock, or use another");
  }
  return absl::OkStatus();
}

absl::Status CheckRole(const std::string& path, const std::string& pem, const TlsUse& use) {
  const std::optional<PeerRole> role = RoleOfCertificate(pem);
  if (!role.has_value() && use.allow_no_role) return absl::OkStatus();
  if (!role.has_value()) {
    return absl::FailedPreconditionError("the certificate '" + path +
                                         "' has no role: make a new one with deploy/make-certs.sh, or add " +
                                         use.flags + "allow-no-role until all certificates of the fleet are replaced");
  }
  if (use.listens && *role != PeerRole::kTracker && *role != PeerRole::kService) {
    return absl::FailedPreconditionError("the certificate '" + path + "' has the role " + PeerRoleName(*role) +
                                         ", and who listens needs one of the role tracker or service: make one with "
                                         "deploy/make-certs.sh");
  }
  return absl::OkStatus();
}

}  // namespace

const char* PeerRoleName(PeerRole role) { return kRoles[static_cast<size_t>(role)]; }

std::optional<PeerRole> RoleOfUris(const std::vector<std::string>& uris) {
  std::optional<PeerRole> found;
  for (const std::string& uri : uris) {
    for (size_t i = 0; i < kRoles.size(); ++i) {
      if (uri != std::string(kRoleUri) + kRoles[i]) continue;
      if (found.has_value()) return std::nullopt;
      found = static_cast<PeerRole>(i);
    }
  }
  return found;
}

std::optional<PeerRole> RoleOfCertificate(const std::string& pem) {
  const Owned<X509> cert = ParseCertificate(pem);
  if (cert == nullptr) return std::nullopt;
  const Owned<GENERAL_NAMES> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(cert.get(), NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> uris;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* text = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                      static_cast<size_t>(ASN1_STRING_length(text)));
  }
  return RoleOfUris(uris);
}

std::string ExpiryDay(const std::string& pem) {
  const Owned<X509> cert = ParseCertificate(pem);
  return cert == nullptr ? "?" : Day(X509_get0_notAfter(cert.get()));
}

double CertificateExpiry(const std::string& pem) {
  const Owned<X509> cert = ParseCertificate(pem);
  std::tm parts{};
  if (cert == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(cert.get()), &parts) != 1) return 0;
  return static_cast<double>(timegm(&parts));
}

absl::StatusOr<TlsIdentity> LoadTls(const TlsFiles& files, const TlsUse& use) {
  const std::string& flags = use.flags;
  if (files.cert.empty() || files.key.empty() || files.ca.empty()) {
    return absl::InvalidArgumentError(flags + "cert, " + flags + "key and " + flags +
                                      "ca go together: give all three or none");
  }
  TlsIdentity identity;
  identity.files = files;
  identity.listens = use.listens;
  identity.allow_no_role = use.allow_no_role;
  ASSIGN_OR_RETURN(identity.cert, ReadNamedFile(flags + "cert", files.cert));
  ASSIGN_OR_RETURN(identity.key, ReadSecretFile(flags + "key", files.key));
  ASSIGN_OR_RETURN(identity.ca, ReadNamedFile(flags + "ca", files.ca));
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
  RETURN_IF_ERROR(CheckRole(files.cert, identity.cert, use));
  return identity;
}

}  // namespace diapason
