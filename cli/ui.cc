// diapason ui and diapason report: a history as a page, live or in one file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/explanation.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/explanation.h"
#include "cli/flags.h"
#include "cli/page_flags.h"
#include "cli/page_sources.h"
#include "ui/feed.h"
#include "ui/report.h"

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

// Those that a reader is most likely to look at: the best record of the tasks that take most of a network's time, and
// of tasks of no network behind them.
absl::StatusOr<std::vector<int64_t>> RecordsToExplain(History& history, int64_t most) {
  ASSIGN_OR_RETURN(const std::vector<TuningRecord> best, history.TopK({}, 1));
  ASSIGN_OR_RETURN(const std::vector<NetworkTask> links, history.NetworkTasks());
  std::map<std::string, double> counts;
  for (const NetworkTask& link : links) {
    double& count = counts[link.workload_key];
    count = std::max(count, link.weight);
  }
  std::vector<std::pair<double, int64_t>> by_time;
  for (const TuningRecord& record : best)
    by_time.emplace_back(-counts[record.workload_key] * MedianSeconds(*record.timing()), record.id);
  std::sort(by_time.begin(), by_time.end());
  std::vector<int64_t> ids;
  for (const auto& [time, id] : by_time)
    if (static_cast<int64_t>(ids.size()) < most) ids.push_back(id);
  return ids;
}

absl::Status RunReportCommand(const ReportFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<HistoryFeed> feed, HistoryFeed::Open(flags.history));
  Json records = Json::object();
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, RecordsToExplain(feed->history(), flags.details));
  for (int64_t id : ids) {
    const absl::StatusOr<api::Explanation> explained = api::ExplainRecordOf(feed->history(), id);
    if (explained.ok()) {
      records[absl::StrCat(id)] = ExplanationJson(*explained);
    } else {
      Warn(session, absl::StrCat("record ", id, " is without details: ", std::string(explained.status().message())));
    }
  }
  const std::string html = ReportHtml({{"history", feed->Snapshot()}, {"records", std::move(records)}});
  RETURN_IF_ERROR(WriteReport(flags.out, html));
  session.out << "report in " << flags.out << ": one file of " << (html.size() + 1023) / 1024
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
