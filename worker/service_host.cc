#include "worker/service_host.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "worker/channel.h"

namespace diapason {
namespace {

// Threads of calls that block one each (sync services); more calls at once are refused.
constexpr int kMaxThreads = 256;

std::shared_ptr<grpc::ServerCredentials> CredentialsOf(const ServerCredentials& credentials) {
  if (!credentials.tls.has_value()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = credentials.tls->ca;
  options.pem_key_cert_pairs.push_back({credentials.tls->key, credentials.tls->cert});
  return grpc::SslServerCredentials(options);
}

}  // namespace

class ServiceHost::Impl {
 public:
  absl::Status Start(const ServiceHostOptions& options, const std::vector<grpc::Service*>& services) {
    PrepareGrpc();
    const std::string& address = options.address;
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    if (!address.empty()) builder.AddListeningPort(address, CredentialsOf(options.credentials), &port);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kMaxThreads);
    builder.SetResourceQuota(quota);
    for (grpc::Service* service : services) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || (!address.empty() && port == 0)) {
      return absl::UnavailableError("cannot listen on '" + address +
                                    "': the port is in use or the address is not of this host");
    }
    in_process_ = NameInProcess(*server_);
    if (address.empty()) return absl::OkStatus();
    address_ = address.substr(0, address.rfind(':')) + ":" + std::to_string(port);
    return absl::OkStatus();
  }
  ~Impl() { Shutdown(); }
  const std::string& address() const { return address_; }
  const std::string& in_process() const { return in_process_; }
  void Shutdown() {
    if (server_ == nullptr) return;
    ForgetInProcess(in_process_);
    if (auto* health = server_->GetHealthCheckService()) health->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  }

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_, in_process_;
};

ServiceHost::ServiceHost(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ServiceHost::~ServiceHost() = default;

absl::StatusOr<std::unique_ptr<ServiceHost>> ServiceHost::Start(const ServiceHostOptions& options,
                                                                const std::vector<grpc::Service*>& services) {
  auto impl = std::make_unique<Impl>();
  if (absl::Status status = impl->Start(options, services); !status.ok()) return status;
  return std::unique_ptr<ServiceHost>(new ServiceHost(std::move(impl)));
}

const std::string& ServiceHost::address() const { return impl_->address(); }
const std::string& ServiceHost::in_process() const { return impl_->in_process(); }
void ServiceHost::Shutdown() { impl_->Shutdown(); }

}  // namespace diapason
