// Events of long-running services, one line each on stderr:
//
//   2026-11-21T12:00:00.123Z info worker_registered worker=node1 devices=2 session=3f2a
//
// Silent until SetLogLevel says otherwise: the embedded services of `tune` say nothing. Values with blanks are quoted.
// Secrets (session and queue ids, tokens, keys) are not for logs: pass ShortId of an id.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace diapason {

enum class LogLevel { kNone, kError, kWarning, kInfo, kDebug };

// Safe from any thread.
void SetLogLevel(LogLevel level);
// "error", "warning", "info", "debug"; false for another text.
bool ParseLogLevel(const std::string& text, LogLevel& level);
// Whether a line of this level is written: for events of which there are many.
bool Logs(LogLevel level);
void LogEvent(LogLevel level, const std::string& event, const std::vector<std::pair<std::string, std::string>>& fields);
// The line without time, for tests.
std::string LogLine(LogLevel level, const std::string& event,
                    const std::vector<std::pair<std::string, std::string>>& fields);
// Enough of a secret id to tell lines of one from those of others.
inline std::string ShortId(const std::string& id) { return id.substr(0, 6); }

}  // namespace diapason
