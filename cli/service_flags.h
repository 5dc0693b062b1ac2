// Flags and habits of the commands that run for long and listen or dial (tracker, worker, serve), and of those that
// talk to them.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/command.h"
#include "worker/log.h"

namespace diapason {

struct ServiceFlags {
  std::string log_level = "info";
  bool insecure = false;
};

// --log-level and --insecure.
void AddServiceFlags(CLI::App* command, ServiceFlags* flags);

// Events from now on go to stderr.
void StartLog(const ServiceFlags& flags);

// "HOST:PORT", the host in brackets when it is an IPv6 address. InvalidArgument names the flag, the text and the form.
absl::Status CheckAddress(const std::string& flag, const std::string& address);
bool IsLoopback(const std::string& address);
// Plain text leaves this host only when that is said aloud. PermissionDenied names the flag and the mends.
absl::Status CheckPlainText(const std::string& flag, const std::string& address, bool insecure);

// Waits for Ctrl-C or SIGTERM, or until `ended` says so (asked ten times a second).
void WaitForStop(const std::function<bool()>& ended = nullptr);

}  // namespace diapason
