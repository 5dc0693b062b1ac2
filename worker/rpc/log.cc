#include "worker/rpc/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>

#include "base/rfc3339.h"

namespace diapason {
namespace {

std::atomic<int> g_level{static_cast<int>(LogLevel::kNone)};

constexpr std::array<const char*, 5> kLevelNames{"none", "error", "warning", "info", "debug"};

std::string Quoted(const std::string& value) {
  bool plain = !value.empty();
  for (unsigned char c : value) plain = plain && c > ' ' && c != '"' && c != '=' && c != 0x7f;
  if (plain) return value;
  std::string quoted = "\"";
  for (unsigned char c : value) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (c < ' ' || c == 0x7f) {
      quoted += ' ';
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += static_cast<char>(c);
    }
  }
  return quoted + "\"";
}

std::string TimeText() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return Rfc3339(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = static_cast<int>(level); }

bool Logs(LogLevel level) { return static_cast<int>(level) <= g_level; }

bool ParseLogLevel(const std::string& text, LogLevel& level) {
  for (size_t i = 1; i < kLevelNames.size(); ++i) {
    if (text != kLevelNames[i]) continue;
    level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

std::string LogLine(LogLevel level, const std::string& event,
                    const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string line = std::string(kLevelNames[static_cast<size_t>(level)]) + " " + event;
  for (const auto& [key, value] : fields) line += " " + key + "=" + Quoted(value);
  return line;
}

void LogEvent(LogLevel level, const std::string& event,
              const std::vector<std::pair<std::string, std::string>>& fields) {
  if (!Logs(level)) return;
  std::string line = TimeText() + " " + LogLine(level, event, fields) + "\n";
  // One write, so that lines of several threads do not mix.
  if (write(STDERR_FILENO, line.data(), line.size()) < 0) return;
}

}  // namespace diapason
