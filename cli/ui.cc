// diapason ui and diapason report: a history as a page, live or in one file.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/page_flags.h"
#include "cli/page_sources.h"
#include "diapason/report.h"

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

constexpr char kDefaultAddress[] = "127.0.0.1:8085";

absl::StatusOr<std::unique_ptr<PageServer>> StartUi(const UiFlags& flags, const std::string& address) {
  PageOptions options;
  options.address = address;
  ASSIGN_OR_RETURN(options.credentials, ShowPageWith(address, flags.security));
  options.history = flags.history;
  options.explain = ExplainApart(flags.history);
  return PageServer::Start(std::move(options));
}

absl::Status RunUi(const UiFlags& flags, Session& session) {
  absl::StatusOr<std::unique_ptr<PageServer>> server =
      StartUi(flags, flags.http.empty() ? kDefaultAddress : flags.http);
  // Somebody else's program, or another `ui`, has the usual port.
  if (flags.http.empty() && absl::IsUnavailable(server.status())) server = StartUi(flags, "127.0.0.1:0");
  RETURN_IF_ERROR(server.status());
  session.out << "page at " << (*server)->url() << " (Ctrl-C stops)\n" << std::flush;
  WaitForStop();
  return absl::OkStatus();
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
                   absl::StrCat("Address to listen on; port 0 selects a free port (default ", kDefaultAddress,
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
