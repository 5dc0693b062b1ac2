// The `diapason` program as a function: main.cc calls it with the process's streams, tests with captured ones.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

namespace diapason {

// What a command may use of the process it runs in. The defaults suit tests: no input, no terminal.
struct CliEnvironment {
  std::istream* in = nullptr;    // read by `history import` when no file is named
  bool out_is_terminal = false;  // `tune` then draws a live view instead of printing lines
  bool err_is_terminal = false;  // the same, for `tune --json`, whose view goes to err
  bool colour = false;           // live views may use it
  // Columns and rows of the terminal, asked at each redraw; absent: 80 by 24.
  std::function<std::pair<int, int>()> terminal_size;
  // Variables of the environment, empty where they are not set; absent: none is.
  std::function<std::string(const std::string&)> variable;
  // Whether `out` is a pipe whose reader has gone; absent: it is not.
  std::function<bool()> out_has_no_reader;
};

// Runs one command. `args` are those behind the program's name. Reports go to `out`, errors (one sentence each) and
// warnings to `err`. Returns the exit code: 0 on success, 2 for arguments that make no command, 130 when stopped by
// Ctrl-C, 141 without a word when the report's reader went away (as shells report a program ended by SIGPIPE), 1 for
// every other failure. One call at a time.
int RunCli(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
           const CliEnvironment& environment = {});

}  // namespace diapason
