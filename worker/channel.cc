#include "worker/channel.h"

#include <grpc/support/log.h>
#include <grpcpp/support/client_interceptor.h>

#include <cstdlib>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "worker/tls_probe.h"

namespace diapason {
namespace {

// Puts the token into the metadata of each call. (gRPC's own call credentials refuse plain text, which loopback may
// speak.)
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& bearer) : bearer_(bearer) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
      methods->GetSendInitialMetadata()->insert({"authorization", bearer_});
    }
    methods->Proceed();
  }

 private:
  const std::string bearer_;
};

class TokenInterceptors final : public grpc::experimental::ClientInterceptorFactoryInterface {
 public:
  explicit TokenInterceptors(const std::string& token) : bearer_("Bearer " + token) {}
  grpc::experimental::Interceptor* CreateClientInterceptor(grpc::experimental::ClientRpcInfo*) override {
    return new TokenInterceptor(bearer_);
  }

 private:
  const std::string bearer_;
};

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // trackers are near; proxies are for the outside
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection each for worker and coordinator
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // The time that TCP and TLS have for their handshakes, repeated packets included (the first after 1 s).
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 8000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);  // finds a peer whose host is gone
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  return arguments;
}

}  // namespace

void PrepareGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A connection that is being made anew is looked after by calls, which fail at once meanwhile, and between them by gRPC
    // itself every 5 s (its default): a TLS handshake of four steps then never ends within the 8 s that it has.
    setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*overwrite=*/0);
    // 4% of a busy tracker's time: Debian builds abseil with its detector of deadlocks switched on.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  });
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const std::shared_ptr<const ClientCredentials>& credentials) {
  PrepareGrpc();
  std::shared_ptr<grpc::ChannelCredentials> shown = grpc::InsecureChannelCredentials();
  if (credentials != nullptr && credentials->tls.has_value()) {
    shown = grpc::SslCredentials({credentials->tls->ca, credentials->tls->key, credentials->tls->cert});
  }
  if (credentials == nullptr || credentials->token.empty()) {
    return grpc::CreateCustomChannel(address, shown, Arguments());
  }
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<TokenInterceptors>(credentials->token));
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, shown, Arguments(), std::move(interceptors));
}

absl::Status NoAnswer(const std::string& what, const std::string& address, const absl::Status& last,
                      const std::shared_ptr<const ClientCredentials>& credentials) {
  std::string why;
  const std::string wrong =
      WhatIsWrongWithTls(address, credentials == nullptr ? ClientCredentials() : *credentials, why);
  if (!wrong.empty()) return absl::UnavailableError("the " + what + " at '" + address + "' " + wrong);
  if (why.empty()) why = std::string(last.message());
  return absl::UnavailableError("the " + what + " at '" + address + "' does not answer (" + why + "): start it with 'diapason " +
                                (what == "service" ? "serve" : what) + "', or check the address and the network");
}

}  // namespace diapason
