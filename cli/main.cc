#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>

#include "api/processes/processes.h"
#include "cli/cli.h"

namespace {

std::pair<int, int> TerminalSize() {
  winsize size{};
  for (int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    if (ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) return {size.ws_col, size.ws_row};
  }
  return {80, 24};
}

// https://no-color.org: set and not empty means none.
bool WantsColour() {
  const char* none = std::getenv("NO_COLOR");
  return none == nullptr || *none == '\0';
}

// One on which a view can be redrawn.
bool IsTerminal(int stream) {
  const char* kind = std::getenv("TERM");
  return isatty(stream) != 0 && (kind == nullptr || std::string(kind) != "dumb");
}

bool OutHasNoReader() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

}  // namespace

int main(int argc, char** argv) {
  // A limit of file sizes that is reached and a pipe that nobody reads are errors of the write and not the end of the
  // process: measurements that come back meanwhile are kept.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (const std::optional<int> code = diapason::api::RunInternal(args)) return *code;
  diapason::CliEnvironment environment;
  environment.in = &std::cin;
  environment.out_is_terminal = IsTerminal(STDOUT_FILENO);
  environment.err_is_terminal = IsTerminal(STDERR_FILENO);
  environment.colour = WantsColour();
  environment.terminal_size = TerminalSize;
  environment.out_has_no_reader = OutHasNoReader;
  environment.variable = [](const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return std::string(value == nullptr ? "" : value);
  };
  return diapason::RunCli(args, std::cout, std::cerr, environment);
}
