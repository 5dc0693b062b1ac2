// A process that listens asks itself, through its own port, whether it serves, and tells systemd (sd_notify(3)):
// READY=1 at the start, WATCHDOG=1 after each good answer where the unit has WatchdogSec. systemd restarts a process
// that is silent.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "worker/rpc/security.h"

namespace diapason::api {

class SelfCheck {
 public:
  // `address`: where this process listens (empty: nowhere yet); `tls`: what it shows there. Until the first good
  // answer, which never comes where the certificate is not for clients too, the log says so and systemd is notified
  // that all is well, as it is while the process listens nowhere. Without a supervisor (NOTIFY_SOCKET is not set) it
  // does nothing.
  SelfCheck(const std::string& address, const std::optional<TlsIdentity>& tls);
  // Of a service that has taken over, or stands by again.
  void Listens(const std::string& address);
  // Tells that the process stops.
  ~SelfCheck();
  SelfCheck(const SelfCheck&) = delete;
  SelfCheck& operator=(const SelfCheck&) = delete;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;  // null: no supervisor
};

}  // namespace diapason::api
