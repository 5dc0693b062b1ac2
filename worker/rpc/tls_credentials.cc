#include "worker/rpc/tls_credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/rpc/tls_watch.h"

namespace diapason {
namespace {

namespace tls = grpc::experimental;

constexpr unsigned kReadAgainSeconds = 1;

std::shared_ptr<tls::CertificateProviderInterface> ProviderOf(const TlsIdentity& identity) {
  if (identity.files.given()) {
    const TlsWatch& watch = TlsWatch::Of(identity);
    const std::string &shown = watch.identity_path(), &root = watch.root_path();
    if (!shown.empty() && !root.empty())
      return std::make_shared<tls::FileWatcherCertificateProvider>(shown, shown, root, kReadAgainSeconds);
  }
  return std::make_shared<tls::StaticDataCertificateProvider>(
      identity.ca, std::vector<tls::IdentityKeyCertPair>{{identity.key, identity.cert}});
}

void Watch(tls::TlsCredentialsOptions& options) {
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
}

// The name, and the role of who listens.
class ServerVerifier final : public tls::ExternalCertificateVerifier {
 public:
  ServerVerifier(bool allow_no_role, bool any_name) : allow_no_role_(allow_no_role), any_name_(any_name) {}
  ~ServerVerifier() override = default;

  bool Verify(tls::TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)> callback,
              grpc::Status* status) override {
    *status = grpc::Status::OK;
    if (!any_name_ && !names_.Verify(request, std::move(callback), status)) {
      *status = grpc::Status(grpc::StatusCode::INTERNAL, "names are checked at once");
    }
    if (!status->ok()) return true;
    std::vector<std::string> uris;
    for (const grpc::string_ref& uri : request->uri_names()) uris.emplace_back(uri.data(), uri.size());
    const std::optional<PeerRole> role = RoleOfUris(uris);
    const bool listens = role == PeerRole::kTracker || role == PeerRole::kService;
    if (!listens && !(allow_no_role_ && !role.has_value())) {
      *status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "the certificate is no tracker's and no service's");
    }
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest*) override {}

 private:
  const bool allow_no_role_, any_name_;
  tls::HostNameCertificateVerifier names_;
};

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ChannelTls(const TlsIdentity& identity) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(ProviderOf(identity));
  Watch(options);
  options.set_certificate_verifier(
      tls::ExternalCertificateVerifier::Create<ServerVerifier>(identity.allow_no_role, identity.any_name));
  if (identity.any_name) options.set_check_call_host(false);
  return tls::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> ServerTls(const TlsIdentity& identity) {
  tls::TlsServerCredentialsOptions options(ProviderOf(identity));
  Watch(options);
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

}  // namespace diapason
