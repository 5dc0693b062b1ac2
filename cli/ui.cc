// diapason ui and diapason report: a history as a page, live or in one file.
#include <CLI/CLI.hpp>
#include <atomic>
#include <memory>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/service_flags.h"
#include "diapason/report.h"
#include "diapason/servers.h"

namespace diapason {
namespace {

struct UiFlags {
  std::string history, http;
  SecurityFlags security;
};

struct ReportFlags {
  std::string history, out;
  int64_t details = 40;
};

absl::Status RunUi(const UiFlags& flags, Session& session) {
  std::atomic<bool> stop{false};
  std::optional<InterruptGuard> interrupt;
  api::PageOptions options;
  options.history = flags.history;
  options.http = ListenAt(flags.http, flags.security);
  options.on_listen = [&](const std::string& url) {
    session.out << "page at " << url << " (Ctrl-C stops)\n" << std::flush;
    interrupt.emplace(&stop, SecondSignal::kAsBefore);
  };
  options.hooks.stop = &stop;
  return api::ServePages(options);
}

absl::Status RunReportCommand(const ReportFlags& flags, Session& session) {
  api::ReportOptions options;
  options.history = flags.history;
  options.out = flags.out;
  options.details = flags.details;
  options.hooks = HooksOf(session);
  ASSIGN_OR_RETURN(const api::Report report, api::WriteReport(options));
  session.out << "report in " << flags.out << ": one file of " << (report.bytes + 1023) / 1024
              << " KiB, which a browser opens without a network\n";
  return absl::OkStatus();
}

}  // namespace

void AddUi(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("ui", "Show a history as a page in the browser, live");
  command->footer(
      "Prints the page's address and serves it until Ctrl-C. New measurements appear at once.\n`diapason serve --http` "
      "also shows the jobs and the fleet of a service; `diapason report` writes the page to one file.");
  auto flags = std::make_shared<UiFlags>();
  command->add_option("--history", flags->history, "History to show")->required()->type_name("FILE");
  command
      ->add_option("--http", flags->http,
                   absl::StrCat("Address to listen on; port 0 selects a free port (default ", api::kPageAddress,
                                ", or a free port if that one is in use)"))
      ->type_name("HOST:PORT");
  AddSecurityFlags(command, &flags->security, ConnectionSide::kServer);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunUi(*flags, session); }; });
}

void AddReport(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("report", "Write a history as one HTML file");
  command->footer("The file contains the page of `diapason ui` and needs no server and no network.");
  auto flags = std::make_shared<ReportFlags>();
  command->add_option("--history", flags->history, "History to show")->required()->type_name("FILE");
  command->add_option("--out", flags->out, "File to write; an existing report is replaced")
      ->required()
      ->type_name("FILE");
  AddWhole(command, "--details", &flags->details, {0, 100000},
           "Number of best records to include with loops, source and features, the slowest tasks first (default 40)");
  command->callback(
      [&chosen, flags] { chosen = [flags](Session& session) { return RunReportCommand(*flags, session); }; });
}

}  // namespace diapason
