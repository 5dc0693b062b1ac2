// Connections to a tracker, for .cc files that speak gRPC: channels, calls with deadlines, backoff.
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
#include "worker/grpc_status.h"
#include "worker/security.h"

namespace diapason {

inline constexpr int kMaxMessageBytes = 64 << 20;

// To be called before gRPC is used; MakeChannel and ServiceHost do. gRPC writes lines of its own to stderr about faults
// that it also returns; we say what there is to say. $GRPC_VERBOSITY brings them back.
void PrepareGrpc();

// Names a server of this process: the text is an address for MakeChannel, which then connects by a pair of sockets that
// have no name themselves, so that nobody else can. Safe from any thread.
std::string NameInProcess(grpc::Server& server);
// To be called before the server goes; later channels to the name are never connected.
void ForgetInProcess(const std::string& name);

// Connects when first used, and again whenever the connection breaks. Shows `credentials` (null: plain text and no
// token), the token with every call. `address`: HOST:PORT, or a name of NameInProcess, which needs no credentials.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const std::shared_ptr<const ClientCredentials>& credentials = nullptr);

// A peer with one address, or several with commas between them: services that take over from each other, of which one
// at a time answers. Each address has a channel, and so a certificate, of its own. Safe from any thread.
class Peer {
 public:
  Peer(const std::string& addresses, const std::shared_ptr<const ClientCredentials>& credentials);

  size_t addresses() const { return channels_.size(); }
  // Number of the address that calls go to.
  size_t current() const { return current_; }
  // The one of this number did not answer: calls go to the next one, and to the first after the last.
  void Failed(size_t number) {
    current_.compare_exchange_strong(number, number + 1 < channels_.size() ? number + 1 : 0);
  }
  const std::vector<std::shared_ptr<grpc::Channel>>& channels() const { return channels_; }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::atomic<size_t> current_{0};
};

// The stub of `Service` (v1::Tracker) for the address that calls go to. The peer outlives it.
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

// Lets another thread end a call that waits.
class CallGuard {
 public:
  // Ends the call in progress and every later one at once.
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

// When to call a peer again that did not answer: its next address at once, and after a pause once all of them were
// tried. One thread at a time; the peer outlives it.
class PeerRetry {
 public:
  // `give_up_seconds`: from now on; nothing: never.
  explicit PeerRetry(Peer& peer, std::optional<double> give_up_seconds = std::nullopt) : peer_(peer) {
    if (!give_up_seconds.has_value()) return;
    give_up_ =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*give_up_seconds));
  }

  // Before each call.
  void Begin() {
    ++attempts_;
    called_ = peer_.current();
  }
  // The address that was called did not answer.
  void NextAddress() { peer_.Failed(called_); }
  // How long to wait before the next call: zero while there are addresses that were not tried since the last pause.
  // Nothing: it is time to give up.
  std::optional<std::chrono::milliseconds> Pause() {
    if (attempts_ % peer_.addresses() != 0) return std::chrono::milliseconds(0);
    const std::chrono::milliseconds wait = backoff_.Next();
    if (give_up_.has_value() && Clock::now() + wait > *give_up_) return std::nullopt;
    return wait;
  }
  // After an answer: pauses are short again.
  void Reset() { backoff_.Reset(); }

 private:
  using Clock = std::chrono::steady_clock;
  Peer& peer_;
  std::optional<Clock::time_point> give_up_;
  Backoff backoff_;
  size_t attempts_ = 0, called_ = 0;
};

// What is said of a peer that did not answer in time: the reason, looked for anew (worker/tls_probe.h), and how to fix
// it. `what`: "tracker", "service", "server" (either); `address`: as Peer's; `last`: of the last call.
absl::Status NoAnswer(const std::string& what, const std::string& address, const absl::Status& last,
                      const std::shared_ptr<const ClientCredentials>& credentials = nullptr);

// The network, or the peer, is at fault: the same call may work later.
inline bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

}  // namespace diapason
