// The `diapason` program as a function: main.cc calls it with the process's streams, tests with captured ones.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace diapason {

// The environment of a command. The defaults suit tests: no input, no terminal.
struct CliEnvironment {
  std::istream* in = nullptr;    // read by `history import` if no file is given
  bool out_is_terminal = false;  // `tune` then draws a live view instead of printing lines
  bool err_is_terminal = false;  // the same for `tune --json`, whose live view goes to err
  bool colour = false;           // colour live views
  // Returns columns and rows of the terminal, called for each redraw; empty: 80 by 24.
  std::function<std::pair<int, int>()> terminal_size;
  // Returns an environment variable, or an empty text if it is not set; empty: none is set.
  std::function<std::string(const std::string&)> variable;
  // Returns whether `out` is a pipe without a reader; empty: it is not.
  std::function<bool()> out_has_no_reader;
};

// Runs one command. `args` are the arguments after the program's name. Output goes to `out`, errors and warnings to
// `err`. Returns the exit code: 0 on success, 2 for invalid arguments, 130 if stopped by Ctrl-C, 141 without a message
// if the reader of `out` has gone (as shells report a program ended by SIGPIPE), 1 for every other failure. Not
// reentrant.
int RunCli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
           const CliEnvironment& environment = {});

}  // namespace diapason
