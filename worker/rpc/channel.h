// Connections to a tracker: channels, calls with deadlines, backoff. To be included only by .cc files that use gRPC.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "worker/rpc/grpc_status.h"
#include "worker/rpc/security.h"

namespace diapason {

inline constexpr int kMaxMessageBytes = 64 << 20;

// Must be called before gRPC is used; MakeChannel and ServiceHost do so. Turns off gRPC's own messages on stderr, since
// it returns the same errors and we report them; setting $GRPC_VERBOSITY turns them on again.
void PrepareGrpc();

// Gives a server of this process a name, which MakeChannel accepts as an address. The connection is a pair of unnamed
// sockets, so that no other process can connect. Thread-safe.
std::string NameInProcess(grpc::Server& server);
// Must be called before the server is destroyed; channels made for the name afterwards never connect.
void ForgetInProcess(const std::string& name);

// The channel connects when first used, and again whenever the connection breaks. It uses `credentials` (null: plain
// text, no token) and sends the token with every call. `address`: HOST:PORT, or a name from NameInProcess, which needs
// no credentials.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const std::shared_ptr<const ClientCredentials>& credentials = nullptr);

// A peer with one address, or several separated by commas: services that take over from each other, one of which
// answers at any time. Each address has its own channel, and therefore its own certificate. Thread-safe.
class Peer {
 public:
  Peer(const std::string& addresses, const std::shared_ptr<const ClientCredentials>& credentials);

  size_t addresses() const { return channels_.size(); }
  // Index of the address that calls go to.
  size_t current() const { return current_; }
  // Reports that the address with this index did not answer: calls now go to the next one, after the last to the first.
  void Failed(size_t number) {
    current_.compare_exchange_strong(number, number + 1 < channels_.size() ? number + 1 : 0);
  }
  const std::vector<std::shared_ptr<grpc::Channel>>& channels() const { return channels_; }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::atomic<size_t> current_{0};
};

// The stub of `Service` (v1::Tracker) for the address that calls go to. The peer must outlive it.
template <typename Service>
class PeerStub {
 public:
  using Stub = typename Service::Stub;
  explicit PeerStub(const Peer& peer) : peer_(peer) {
    for (const std::shared_ptr<grpc::Channel>& channel : peer.channels()) stubs_.push_back(Service::NewStub(channel));
  }
  Stub* get() const { return stubs_[peer_.current()].get(); }
  Stub* operator->() const { return get(); }

 private:
  const Peer& peer_;
  std::vector<std::unique_ptr<Stub>> stubs_;
};

// Lets another thread cancel a waiting call.
class CallGuard {
 public:
  // Cancels the call in progress, and every later one as soon as it starts.
  void CancelAll() {
    MutexLock lock(mutex_);
    cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

  // One call with a deadline. Cancelled after CancelAll.
  template <typename Call>
  absl::Status Run(std::chrono::milliseconds timeout, const Call& call) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + timeout);
    {
      MutexLock lock(mutex_);
      if (cancelled_) return absl::CancelledError("stopping");
      context_ = &context;
    }
    grpc::Status status = call(context);
    MutexLock lock(mutex_);
    context_ = nullptr;
    return FromGrpc(status);
  }

 private:
  Mutex mutex_;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// Exponential backoff with jitter: the interval doubles up to a limit, and each wait is drawn from its upper half.
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

// When to retry a call to a peer that did not answer: at its next address at once, and after a pause when all addresses
// have been tried. Used by one thread at a time; the peer must outlive it.
class PeerRetry {
 public:
  // `give_up_seconds`: counted from now; nullopt: never give up.
  explicit PeerRetry(Peer& peer, std::optional<double> give_up_seconds = std::nullopt) : peer_(peer) {
    if (!give_up_seconds.has_value()) return;
    give_up_ =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*give_up_seconds));
  }

  // Call before each attempt.
  void Begin() {
    ++attempts_;
    called_ = peer_.current();
  }
  // Call if the address did not answer.
  void NextAddress() { peer_.Failed(called_); }
  // How long to wait before the next attempt: zero while some address has not been tried since the last pause. nullopt:
  // give up.
  std::optional<std::chrono::milliseconds> Pause() {
    if (attempts_ % peer_.addresses() != 0) return std::chrono::milliseconds(0);
    const std::chrono::milliseconds wait = backoff_.Next();
    if (give_up_.has_value() && Clock::now() + wait > *give_up_) return std::nullopt;
    return wait;
  }
  // Call after an answer: makes pauses short again.
  void Reset() { backoff_.Reset(); }

 private:
  using Clock = std::chrono::steady_clock;
  Peer& peer_;
  std::optional<Clock::time_point> give_up_;
  Backoff backoff_;
  size_t attempts_ = 0, called_ = 0;
};

// The error for a peer that did not answer in time: the reason, found by probing again (worker/rpc/tls_probe.h), and
// how to fix it. `what`: "tracker", "service", or "server" (either); `address`: as for Peer; `last`: status of the last
// call.
absl::Status NoAnswer(const std::string& what, const std::string& address, const absl::Status& last,
                      const std::shared_ptr<const ClientCredentials>& credentials = nullptr);

// The error for a peer that answers, but not as a tracker (Unimplemented): a service without one, or another server.
absl::Status NoTracker(const std::string& address);

// Whether the network or the peer is at fault, so that the same call may succeed later.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace diapason
