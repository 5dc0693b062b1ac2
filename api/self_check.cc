#include "api/self_check.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/mutex.h"
#include "worker/rpc/health_check.h"
#include "worker/rpc/log.h"

namespace diapason::api {
namespace {

// One datagram to the socket that systemd named; "@" stands for the abstract namespace.
void Notify(const std::string& socket_path, const std::string& text) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (socket_path.empty() || socket_path.size() >= sizeof to.sun_path) return;
  std::memcpy(to.sun_path, socket_path.data(), socket_path.size());
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path.size());
  sendto(fd, text.data(), text.size(), MSG_NOSIGNAL, reinterpret_cast<sockaddr*>(&to), size);
  close(fd);
}

// Where this process reaches what listens there.
std::string Reachable(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  if (host == "0.0.0.0") return "127.0.0.1" + address.substr(colon);
  return host == "[::]" ? "[::1]" + address.substr(colon) : address;
}

// How often systemd wants to hear; 0: not at all. Of another process: it is not meant.
std::chrono::microseconds WatchdogTime() {
  const char* time = std::getenv("WATCHDOG_USEC");
  const char* pid = std::getenv("WATCHDOG_PID");
  int64_t microseconds = 0;
  if (time == nullptr || !absl::SimpleAtoi(time, &microseconds)) return {};
  if (pid != nullptr && pid != std::to_string(getpid())) return {};
  return std::chrono::microseconds(std::max<int64_t>(0, microseconds));
}

}  // namespace

class SelfCheck::Impl {
 public:
  Impl(std::string socket_path, const std::string& address, const std::optional<TlsIdentity>& tls)
      : socket_path_(std::move(socket_path)), every_(WatchdogTime() / 3), address_(address) {
    auto credentials = std::make_shared<ClientCredentials>();
    credentials->tls = tls;
    if (tls.has_value()) credentials->tls->any_name = true;  // the port is its own, whatever the certificate names
    credentials_ = std::move(credentials);
    Notify(socket_path_, "READY=1");
    if (every_.count() > 0) thread_ = std::thread([this] { Loop(); });
  }
  ~Impl() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    if (thread_.joinable()) thread_.join();
    Notify(socket_path_, "STOPPING=1");
  }

  void Listens(const std::string& address) {
    MutexLock lock(mutex_);
    address_ = address;
  }

 private:
  absl::Status Check(const std::string& address) const {
    if (address.empty()) return absl::OkStatus();
    return ::diapason::CheckHealth(Reachable(address), std::chrono::duration_cast<std::chrono::milliseconds>(every_),
                                   credentials_);
  }
  void Loop() {
    bool answered = false, logged = false;
    std::string checked;
    MutexLock lock(mutex_);
    do {
      if (std::exchange(checked, address_) != address_) answered = logged = false;
      lock.Unlock();
      const absl::Status status = Check(checked);
      answered = answered || (status.ok() && !checked.empty());
      if (!status.ok() && (answered || !std::exchange(logged, true)))
        LogEvent(LogLevel::kError, answered ? "self_check_failed" : "self_check_off",
                 {{"why", std::string(status.message())}});
      if (status.ok() || !answered) Notify(socket_path_, "WATCHDOG=1");
      lock.Lock();
    } while (!changed_.WaitFor(lock, every_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; }));
  }

  const std::string socket_path_;
  const std::chrono::microseconds every_;
  std::shared_ptr<const ClientCredentials> credentials_;
  Mutex mutex_;
  CondVar changed_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

SelfCheck::SelfCheck(const std::string& address, const std::optional<TlsIdentity>& tls) {
  if (const char* path = std::getenv("NOTIFY_SOCKET")) impl_ = std::make_unique<Impl>(path, address, tls);
}
SelfCheck::~SelfCheck() = default;
void SelfCheck::Listens(const std::string& address) {
  if (impl_ != nullptr) impl_->Listens(address);
}

}  // namespace diapason::api
