#include "worker/rpc/service_host.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "base/check.h"
#include "worker/rpc/call_gate.h"
#include "worker/rpc/channel.h"
#include "worker/rpc/tls_credentials.h"

namespace diapason {
namespace {

// Threads of calls that block one each: of reflection, since our own services hold none.
constexpr int kMaxThreads = 16;
// Of all that gRPC buffers for connections and messages; past it, it drops calls.
constexpr size_t kMaxBufferBytes = size_t{1} << 30;
constexpr int kMaxReceiveBytes = 32 << 20;  // the largest of any method

void LimitConnections(grpc::ServerBuilder& builder) {
  const std::pair<const char*, int> kLimits[] = {
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000},  // half-open ones: TCP without TLS or HTTP/2 behind it
      // No limit of age: it would end the connections of this process to itself, which cannot be made again.
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, 10 * 60'000},
      {GRPC_ARG_KEEPALIVE_TIME_MS, 20'000},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000},
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, 256},  // of one connection
      {GRPC_ARG_MAX_METADATA_SIZE, 16 << 10},
  };
  for (const auto& [name, value] : kLimits) builder.AddChannelArgument(name, value);
}

}  // namespace

std::shared_ptr<CallGate> MakeGate(const ServerCredentials& credentials) {
  return std::make_shared<CallGate>(credentials);
}

class ServiceHost::Impl {
 public:
  absl::Status Start(const ServiceHostOptions& options, const std::vector<grpc::Service*>& services) {
    PrepareGrpc();
    const std::string& address = options.address;
    gate_ = options.gate;
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    if (!address.empty()) {
      acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
          External::FROM_FD, options.credentials.tls.has_value() ? ServerTls(*options.credentials.tls)
                                                                 : grpc::InsecureServerCredentials());
    }
    // A connection of this process to itself is not made again when a ping comes late since the process stood still.
    if (!address.empty()) LimitConnections(builder);
    builder.SetMaxReceiveMessageSize(kMaxReceiveBytes);
    builder.SetMaxSendMessageSize(kMaxMessageBytes);
    grpc::ResourceQuota quota;
    quota.SetMaxThreads(kMaxThreads);
    quota.Resize(kMaxBufferBytes);
    builder.SetResourceQuota(quota);
    for (grpc::Service* service : services) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("cannot start a server for '" + address + "'");
    in_process_ = NameInProcess(*server_);
    if (address.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(listener_, Listener::Start({address, options.max_connections, 0}, [this](int listener, int fd) {
                       grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
                       connection.listener_fd = listener;
                       connection.fd = fd;
                       acceptor_->HandleNewConnection(&connection);
                     }));
    address_ = listener_->address();
    return absl::OkStatus();
  }
  ~Impl() { Shutdown(); }
  const std::string& address() const { return address_; }
  const std::string& in_process() const { return in_process_; }
  std::vector<Metric> Metrics() {
    const ConnectionCounts counts = listener_ == nullptr ? ConnectionCounts() : listener_->counts();
    std::vector<Metric> metrics = {
        Metric::Gauge("diapason_connections", "Connections that are open", static_cast<double>(counts.open)),
        Metric::Counter("diapason_connections_accepted_total", "Connections that were accepted",
                        static_cast<double>(counts.accepted)),
        Metric::Counter("diapason_connections_refused_total", "Connections over the limits",
                        static_cast<double>(counts.refused))};
    if (gate_ == nullptr) return metrics;
    for (Metric& metric : gate_->Metrics()) metrics.push_back(std::move(metric));
    return metrics;
  }
  void Shutdown() {
    if (listener_ != nullptr) listener_->Stop();  // what comes after the server's end would stay open
    if (server_ == nullptr) return;
    ForgetInProcess(in_process_);
    if (auto* health = server_->GetHealthCheckService()) health->Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(2));
  }

 private:
  std::shared_ptr<CallGate> gate_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Listener> listener_;
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
std::vector<Metric> ServiceHost::Metrics() { return impl_->Metrics(); }
const std::string& ServiceHost::in_process() const { return impl_->in_process(); }
void ServiceHost::Shutdown() { impl_->Shutdown(); }

}  // namespace diapason
