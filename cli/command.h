// Shared declarations of the commands. Each command is one file, cli/<name>.cc, which adds its flags to the parser and
// provides the function that runs it.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "cli/cli.h"
#include "diapason/model.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace diapason {

// One call of the program.
struct Session {
  std::ostream& out;
  std::ostream& err;
  const CliEnvironment& environment;
  std::string command_line;  // as typed, for the history
};

// Runs a command. An error is printed; Cancelled means Ctrl-C.
using CommandBody = std::function<absl::Status(Session&)>;

// Each adds its subcommand to `app`. If the parser finds it, `chosen` is set to its body. REQUIRES: both outlive the
// parse.
void AddNetworks(CLI::App& app, CommandBody& chosen);
void AddDevices(CLI::App& app, CommandBody& chosen);
void AddTasks(CLI::App& app, CommandBody& chosen);
void AddTune(CLI::App& app, CommandBody& chosen);
void AddBuild(CLI::App& app, CommandBody& chosen);
void AddRun(CLI::App& app, CommandBody& chosen);
void AddProfile(CLI::App& app, CommandBody& chosen);
void AddExportKernels(CLI::App& app, CommandBody& chosen);
void AddInspect(CLI::App& app, CommandBody& chosen);
void AddQuery(CLI::App& app, CommandBody& chosen);
void AddHistory(CLI::App& app, CommandBody& chosen);
void AddRecords(CLI::App& app, CommandBody& chosen);
void AddExplain(CLI::App& app, CommandBody& chosen);
void AddUi(CLI::App& app, CommandBody& chosen);
void AddReport(CLI::App& app, CommandBody& chosen);
void AddFleet(CLI::App& app, CommandBody& chosen);
void AddServe(CLI::App& app, CommandBody& chosen);
void AddSubmit(CLI::App& app, CommandBody& chosen);
void AddJobs(CLI::App& app, CommandBody& chosen);
void AddTracker(CLI::App& app, CommandBody& chosen);
void AddWorker(CLI::App& app, CommandBody& chosen);
// These describe all commands; `app` is the program.
void AddCompletion(CLI::App& app, CommandBody& chosen);
void AddMan(CLI::App& app, CommandBody& chosen);

// Prints "warning: <sentence>" on one line of `err`.
void Warn(Session& session, const std::string& sentence);
// Hooks for calls of the library, which print warnings.
api::Hooks HooksOf(Session& session);

}  // namespace diapason
