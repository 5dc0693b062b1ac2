// Running another program of this host to its end.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace diapason {

// Runs args[0], looked for in PATH, with `input` on its stdin and our environment, and returns its stdout. NotFound:
// there is no such program. Unknown: it failed; the message has the last line of its stderr. DeadlineExceeded: it was
// killed, with all that it had started, after `timeout_seconds`.
absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& args, const std::string& input = "",
                                       double timeout_seconds = 60);

// The text as one word of a POSIX shell.
std::string ShellWord(const std::string& text);

}  // namespace diapason
