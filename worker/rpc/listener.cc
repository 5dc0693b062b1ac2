#include "worker/rpc/listener.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "worker/rpc/log.h"
#include "worker/rpc/log_pacer.h"

namespace diapason {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostConnections = 20480;
constexpr int kBacklog = 1024;
// Closed connections are counted out at least so often, and at most so often while there are too many.
constexpr std::chrono::milliseconds kSweep{1000}, kSweepWhenFull{20};
// After accept failed for want of files or memory.
constexpr std::chrono::milliseconds kPause{100};

// Nothing owns it: a number and what the kernel calls the socket behind it, which tells whether the number is still
// that socket's.
struct Connection {
  int fd = -1;
  uint64_t cookie = 0;
  std::string peer;
};

// The IP address alone.
std::string HostOf(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (from.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, text, sizeof text);
  } else if (from.ss_family == AF_INET6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&address)) {
      inet_ntop(AF_INET, address.s6_addr + 12, text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &address, text, sizeof text);
    }
  }
  return text;
}

// 0 for what is no socket.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

int PortOf(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

// A socket that listens there, or -1. `port` in network order; 0: that of `to`.
int ListenOn(const addrinfo& to, uint16_t port) {
  const int fd = socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_storage address{};
  std::memcpy(&address, to.ai_addr, to.ai_addrlen);
  if (to.ai_family == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);  // "[::]" takes IPv4 as well
    if (port != 0) reinterpret_cast<sockaddr_in6&>(address).sin6_port = port;
  } else if (port != 0) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = port;
  }
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), to.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  close(fd);
  return -1;
}

// Freed memory of large messages goes back to the system: by default glibc learns to keep blocks of up to 32 MiB for
// later, in eight heaps for each core.
void GiveFreedMemoryBack() {
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_ARENA_MAX, 4);
}

}  // namespace

size_t RaiseOpenFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (limit.rlim_cur < limit.rlim_max) {
    const rlimit raised{limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<size_t>(limit.rlim_cur);
}

class Listener::Impl {
 public:
  explicit Impl(Take take) : take_(std::move(take)) {}
  ~Impl() {
    Stop();
    for (int fd : listeners_) close(fd);
    if (wake_ >= 0) close(wake_);
  }

  absl::Status Start(const ListenerOptions& options) {
    GiveFreedMemoryBack();
    const size_t files = RaiseOpenFileLimit();
    max_connections_ =
        options.max_connections > 0 ? options.max_connections : std::min(files / 4 * 3, kMostConnections);
    max_per_address_ =
        options.max_per_address > 0 ? options.max_per_address : std::max<size_t>(1, max_connections_ / 2);
    RETURN_IF_ERROR(Bind(options.address));
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_ < 0) return absl::UnavailableError("cannot listen on '" + options.address + "': too many open files");
    thread_ = std::thread([this] { Loop(); });
    return absl::OkStatus();
  }
  const std::string& address() const { return address_; }
  ConnectionCounts counts() const {
    MutexLock lock(mutex_);
    return counts_;
  }
  void Stop() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    while (write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
    }
    thread_.join();
    for (int fd : listeners_) close(fd);
    listeners_.clear();
  }

 private:
  absl::Status Bind(const std::string& address) {
    const absl::Status failed = absl::UnavailableError("cannot listen on '" + address +
                                                       "': the port is in use or the address is not of this host");
    const size_t colon = address.rfind(':');
    if (colon == std::string::npos) return failed;
    std::string host = address.substr(0, colon);
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) return failed;
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, freeaddrinfo);
    int port = 0;
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
      const int fd = ListenOn(*one, htons(static_cast<uint16_t>(port)));
      if (fd < 0) continue;
      listeners_.push_back(fd);
      if (port == 0) port = PortOf(fd);
    }
    if (listeners_.empty()) return failed;
    address_ = address.substr(0, colon) + ":" + std::to_string(port);
    return absl::OkStatus();
  }

  void Loop() {
    std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
    for (int fd : listeners_) polled.push_back({fd, POLLIN, 0});
    while (true) {
      const int ready = poll(polled.data(), polled.size(), static_cast<int>(kSweep.count()));
      if (ready < 0 && errno != EINTR) std::this_thread::sleep_for(kPause);
      if (polled[0].revents != 0) return;
      if (Clock::now() - swept_ >= kSweep) Sweep();
      if (ready <= 0) continue;
      for (size_t i = 1; i < polled.size(); ++i)
        if (polled[i].revents != 0) Accept(polled[i].fd);
    }
  }

  void Accept(int listener) {
    // Not for ever: a flood must not keep Stop waiting.
    for (int i = 0; i < kBacklog; ++i) {
      sockaddr_storage from{};
      socklen_t size = sizeof from;
      const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        const int why = errno;
        if (why == EINTR || why == ECONNABORTED || why == EPROTO) continue;
        if (why == EAGAIN || why == EWOULDBLOCK) return;
        // The connection waits in the backlog until there is room.
        if (uint64_t more = 0; not_accepted_.Allows(more)) {
          LogEvent(LogLevel::kError, "connection_not_accepted",
                   {{"address", address_}, {"why", std::strerror(why)}, {"more", std::to_string(more)}});
        }
        std::this_thread::sleep_for(kPause);
        return;
      }
      Connection connection{fd, CookieOf(fd), HostOf(from)};
      if (!HasRoom(connection.peer)) {
        Refuse(connection);
        continue;
      }
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ++per_address_[connection.peer];
      connections_.push_back(std::move(connection));
      Count(/*refused=*/false);
      take_(listener, fd);
    }
  }

  bool HasRoom(const std::string& peer) {
    auto has_room = [&] {
      if (connections_.size() >= max_connections_) return false;
      const auto from_there = per_address_.find(peer);
      return from_there == per_address_.end() || from_there->second < max_per_address_;
    };
    if (has_room()) return true;
    if (Clock::now() - swept_ < kSweepWhenFull) return false;
    Sweep();
    return has_room();
  }

  void Refuse(const Connection& connection) {
    close(connection.fd);
    Count(/*refused=*/true);
    if (uint64_t more = 0; refused_.Allows(more)) {
      LogEvent(LogLevel::kWarning, "connection_refused",
               {{"peer", connection.peer},
                {"open", std::to_string(connections_.size())},
                {"limit", std::to_string(max_connections_)},
                {"limit_per_address", std::to_string(max_per_address_)},
                {"more", std::to_string(more)}});
    }
  }

  // Forgets the connections that are closed.
  void Sweep() {
    swept_ = Clock::now();
    std::erase_if(connections_, [this](const Connection& connection) {
      if (connection.cookie != 0 && CookieOf(connection.fd) == connection.cookie) return false;
      auto from_there = per_address_.find(connection.peer);
      if (--from_there->second == 0) per_address_.erase(from_there);
      return true;
    });
    MutexLock lock(mutex_);
    counts_.open = connections_.size();
  }

  void Count(bool refused) {
    MutexLock lock(mutex_);
    ++(refused ? counts_.refused : counts_.accepted);
    counts_.open = connections_.size();
  }

  const Take take_;
  std::string address_;
  size_t max_connections_ = 0, max_per_address_ = 0;
  std::vector<int> listeners_;
  int wake_ = -1;  // an eventfd, to stop
  std::thread thread_;

  // Of the thread.
  std::vector<Connection> connections_;
  std::map<std::string, size_t> per_address_;
  Clock::time_point swept_{};
  LogPacer not_accepted_, refused_;

  mutable Mutex mutex_;
  ConnectionCounts counts_ ABSL_GUARDED_BY(mutex_);
};

Listener::Listener(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() = default;

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const ListenerOptions& options, Take take) {
  auto impl = std::make_unique<Impl>(std::move(take));
  RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<Listener>(new Listener(std::move(impl)));
}

const std::string& Listener::address() const { return impl_->address(); }
ConnectionCounts Listener::counts() const { return impl_->counts(); }
void Listener::Stop() { impl_->Stop(); }

}  // namespace diapason
