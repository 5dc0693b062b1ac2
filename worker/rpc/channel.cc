#include "worker/rpc/channel.h"

#include <grpc/support/log.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/server_posix.h>
#include <grpcpp/support/client_interceptor.h>
#include <sys/socket.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <map>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/mutex.h"
#include "worker/rpc/tls_credentials.h"
#include "worker/rpc/tls_probe.h"
#include "worker/rpc/tokens.h"

namespace diapason {
namespace {

// Puts the token into the metadata of each call. (gRPC's own call credentials refuse plain text, which loopback may
// speak.)
class TokenInterceptor final : public grpc::experimental::Interceptor {
 public:
  explicit TokenInterceptor(const std::string& bearer) : bearer_(bearer) {}
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(grpc::experimental::InterceptionHookPoints::PRE_SEND_INITIAL_METADATA)) {
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

std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> Showing(const std::string& token) {
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> interceptors;
  interceptors.push_back(std::make_unique<TokenInterceptors>(token));
  return interceptors;
}

// The servers of this process by name.
struct InProcess {
  Mutex mutex;
  std::map<std::string, grpc::Server*> servers ABSL_GUARDED_BY(mutex);
  int named ABSL_GUARDED_BY(mutex) = 0;
};

InProcess& Here() {
  static InProcess& here = *new InProcess;
  return here;
}

constexpr char kInProcess[] = "in-process:";

std::vector<std::string> SplitAddresses(const std::string& addresses) { return absl::StrSplit(addresses, ','); }

// A pair of sockets that have no name, one end of which the server takes. It is not made anew when it breaks: nothing
// but the end of the server breaks it, so there are no keepalive pings either, which a process that stood still would
// miss.
std::shared_ptr<grpc::Channel> ChannelInProcess(const std::string& name) {
  int ends[2];
  // Without one every call fails, as it does when the server is gone.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return grpc::CreateCustomChannel("unix:/nonexistent", grpc::InsecureChannelCredentials(), Arguments());
  grpc::ChannelArguments arguments = Arguments();
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX);
  InProcess& here = Here();
  MutexLock lock(here.mutex);
  if (auto server = here.servers.find(name); server != here.servers.end()) {
    grpc::AddInsecureChannelFromFd(server->second, ends[1]);
  } else {
    close(ends[1]);
  }
  return grpc::experimental::CreateCustomInsecureChannelWithInterceptorsFromFd(name, ends[0], arguments,
                                                                               Showing(OwnToken()));
}

}  // namespace

std::string NameInProcess(grpc::Server& server) {
  InProcess& here = Here();
  MutexLock lock(here.mutex);
  std::string name = kInProcess + std::to_string(++here.named);
  here.servers[name] = &server;
  return name;
}

void ForgetInProcess(const std::string& name) {
  InProcess& here = Here();
  MutexLock lock(here.mutex);
  here.servers.erase(name);
}

void PrepareGrpc() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A connection that is being made anew is looked after by calls, which fail at once meanwhile, and between them by
    // gRPC itself every 5 s (its default): a TLS handshake of four steps then never ends within the 8 s that it has.
    setenv("GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS", "100", /*overwrite=*/0);
    // 4% of a busy tracker's time: Debian builds abseil with its detector of deadlocks switched on.
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  });
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const std::shared_ptr<const ClientCredentials>& credentials) {
  PrepareGrpc();
  if (address.rfind(kInProcess, 0) == 0) return ChannelInProcess(address);
  std::shared_ptr<grpc::ChannelCredentials> shown = grpc::InsecureChannelCredentials();
  if (credentials != nullptr && credentials->tls.has_value()) shown = ChannelTls(*credentials->tls);
  if (credentials == nullptr || credentials->token.empty()) {
    return grpc::CreateCustomChannel(address, shown, Arguments());
  }
  return grpc::experimental::CreateCustomChannelWithInterceptors(address, shown, Arguments(),
                                                                 Showing(credentials->token));
}

Peer::Peer(const std::string& addresses, const std::shared_ptr<const ClientCredentials>& credentials) {
  for (const std::string& address : SplitAddresses(addresses)) channels_.push_back(MakeChannel(address, credentials));
}

absl::Status NoTracker(const std::string& address) {
  return absl::FailedPreconditionError("'" + address +
                                       "' is no tracker: name the address that 'diapason tracker' listens on");
}

absl::Status NoAnswer(const std::string& what, const std::string& address, const absl::Status& last,
                      const std::shared_ptr<const ClientCredentials>& credentials) {
  std::string command = "'diapason " + (what == "service" ? "serve" : what) + "'";
  if (what == "server") command = "'diapason tracker' or 'diapason serve'";
  // What is wrong with its certificates, or nothing; `why` it does not answer then.
  const auto ask = [&](const std::string& one, std::string& why) {
    std::string wrong = WhatIsWrongWithTls(one, credentials == nullptr ? ClientCredentials() : *credentials, why);
    if (why.empty()) why = std::string(last.message());
    return wrong;
  };
  const std::vector<std::string> addresses = SplitAddresses(address);
  if (addresses.size() == 1) {
    std::string why;
    const std::string wrong = ask(address, why);
    if (!wrong.empty()) return absl::UnavailableError("the " + what + " at '" + address + "' " + wrong);
    return absl::UnavailableError("the " + what + " at '" + address + "' does not answer (" + why +
                                  "): start it with " + command + ", or check the address and the network");
  }
  std::string reasons;
  for (const std::string& one : addresses) {
    std::string why;
    const std::string wrong = ask(one, why);
    reasons += (reasons.empty() ? "'" : "; '") + one + "' " + (wrong.empty() ? "does not answer: " + why : wrong);
  }
  return absl::UnavailableError("no " + what + " of '" + address + "' answers (" + reasons + "): start one with " +
                                command + ", or check the addresses and the network");
}

}  // namespace diapason
