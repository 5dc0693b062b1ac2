#include "cli/service_flags.h"

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cli/interrupt.h"

namespace diapason {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

std::optional<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort parts{address.substr(0, colon), 0};
  const std::string port = address.substr(colon + 1);
  const bool digits = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || !absl::SimpleAtoi(port, &parts.port) || parts.port > 65535) return std::nullopt;
  const bool bracketed = parts.host.front() == '[' && parts.host.back() == ']';
  if (parts.host.find(':') != std::string::npos && !bracketed) return std::nullopt;
  if (parts.host.find_first_of(" /,") != std::string::npos) return std::nullopt;
  return parts;
}

}  // namespace

void AddServiceFlags(CLI::App* command, ServiceFlags* flags) {
  command->add_option("--log-level", flags->log_level, "Events told on stderr: error, warning, info (default) or debug")
      ->check(CLI::Validator(
          [](std::string& text) {
            LogLevel level = LogLevel::kNone;
            return ParseLogLevel(text, level) ? std::string() : text + ": give error, warning, info or debug";
          },
          ""))
      ->type_name("LEVEL");
  command->add_flag("--insecure", flags->insecure,
                    "Speak plain text beyond this host, where everybody may read and answer");
}

void StartLog(const ServiceFlags& flags) {
  LogLevel level = LogLevel::kInfo;
  ParseLogLevel(flags.log_level, level);
  SetLogLevel(level);
}

absl::Status CheckAddress(const std::string& flag, const std::string& address) {
  if (Split(address).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " ", address.empty() ? "\"\"" : address,
                   " is not understood; write it as HOST:PORT, for example 127.0.0.1:9190"));
}

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || host.rfind("127.", 0) == 0;
}

absl::Status CheckPlainText(const std::string& flag, const std::string& address, bool insecure) {
  if (insecure || IsLoopback(address)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      flag, " ", address,
      " would speak plain text beyond this host; add --insecure if every host that can reach it is trusted"));
}

void WaitForStop(const std::function<bool()>& ended) {
  std::atomic<bool> stop{false};
  InterruptGuard interrupt(&stop);
  while (!stop && (ended == nullptr || !ended())) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace diapason
