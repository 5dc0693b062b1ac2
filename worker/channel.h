// Connections to a tracker, for .cc files that speak gRPC: channels, calls with deadlines, backoff.
#pragma once

#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "worker/grpc_status.h"

namespace diapason {

inline constexpr int kMaxMessageBytes = 64 << 20;

// gRPC writes lines of its own to stderr about faults that it also returns; we say what there is to say.
// $GRPC_VERBOSITY brings them back.
inline void SilenceGrpcLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  });
}

// Connects when first used, and again whenever the connection breaks.
inline std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  SilenceGrpcLog();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);          // trackers are near; proxies are for the outside
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // one connection each for worker and coordinator
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20000);  // finds a peer whose host is gone
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10000);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// Lets another thread end a call that waits.
class CallGuard {
 public:
  // Ends the call in progress and every later one at once.
  void CancelAll() {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

  // One call with a deadline. Cancelled after CancelAll.
  template <typename Call>
  absl::Status Run(std::chrono::milliseconds timeout, const Call& call) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    {
      std::lock_guard lock(mutex_);
      if (cancelled_) return absl::CancelledError("stopping");
      context_ = &context;
    }
    grpc::Status status = call(context);
    std::lock_guard lock(mutex_);
    context_ = nullptr;
    return FromGrpc(status);
  }

 private:
  std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;
  bool cancelled_ = false;
};

// Waiting times between attempts: doubled up to a limit, each drawn from the upper half (jitter).
class Backoff {
 public:
  std::chrono::milliseconds Next() {
    std::uniform_int_distribution<int64_t> draw(next_ / 2, next_);
    std::chrono::milliseconds wait(draw(random_));
    next_ = std::min<int64_t>(2 * next_, 5000);
    return wait;
  }
  void Reset() { next_ = 100; }

 private:
  int64_t next_ = 100;
  std::mt19937_64 random_{std::random_device{}()};
};

// What is said after a time limit. `what`: "tracker", "service".
inline absl::Status NoAnswer(const std::string& what, const std::string& address, const absl::Status& last) {
  return absl::UnavailableError("the " + what + " at '" + address + "' does not answer (" +
                                std::string(last.message()) + "): start it with 'diapason " +
                                (what == "service" ? "serve" : what) + "', or check the address and the network");
}

// The network, or the peer, is at fault: the same call may work later.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace diapason
