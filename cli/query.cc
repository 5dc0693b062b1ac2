// diapason query: the best records of a history.
#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/defaults.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "diapason/history.h"

namespace diapason {
namespace {

struct QueryFlags {
  std::string history, service, target, workload, device, model;
  int64_t top = 1;
  bool json = false;
  SecurityFlags security;
  const CLI::Option *history_flag = nullptr, *service_flag = nullptr;
};

void PrintJson(std::ostream& out, const std::vector<api::Record>& records) {
  Json list = Json::array();
  for (const api::Record& record : records) {
    list.push_back({{"record", record.id},
                    {"record_uuid", record.uuid},
                    {"workload", record.workload},
                    {"task", record.task},
                    {"target", record.target},
                    {"device", record.device},
                    {"median_us", record.median_us},
                    {"samples_us", record.samples_us},
                    {"stopped_early", record.stopped_early},
                    {"trial", record.trial},
                    {"verified", record.verified()},
                    {"verification", record.verification},
                    {"algorithm", record.algorithm},
                    {"sketch", record.sketch},
                    {"seed", absl::StrCat(record.seed)},
                    {"count", OrNull(record.count)},
                    {"share", OrNull(record.share)}});
  }
  WriteDocument(out, {"records", 2}, {{"records", list}});
}

void PrintText(std::ostream& out, const std::vector<api::Record>& records) {
  TextTable table({{"id", true},
                   {"task"},
                   {"count", true},
                   {"median us", true},
                   {"share", true},
                   {"trial", true},
                   {"verified"},
                   {"sketch"},
                   {"target"},
                   {"device"},
                   {"workload"}});
  for (const api::Record& record : records) {
    const std::string count = record.count.has_value() ? absl::StrFormat("%g", *record.count) : "-";
    const std::string share = record.share.has_value() ? absl::StrFormat("%.1f%%", 100 * *record.share) : "-";
    table.AddRow({absl::StrCat(record.id), record.task, count, Digits(record.median_us), share,
                  absl::StrCat(record.trial), record.verification, record.sketch, record.target, record.device,
                  record.workload});
  }
  out << table.ToString() << Count(records.size(), "record") << "\n";
}

absl::StatusOr<std::vector<api::Record>> ReadHistory(const QueryFlags& flags, const api::RecordQuery& query) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::History> history, api::History::Open(flags.history));
  return history->Query(query, flags.top);
}

absl::Status RunQuery(QueryFlags& flags, Session& session) {
  RETURN_IF_ERROR(ChooseSource("a query", flags.history_flag, &flags.history, flags.service_flag, &flags.service));
  if (flags.history.empty() && flags.service.empty())
    return absl::InvalidArgumentError("a query reads one history; give either --history or --service");
  const api::RecordQuery query{flags.target, flags.workload, flags.device, flags.model};
  ASSIGN_OR_RETURN(const std::vector<api::Record> records,
                   flags.service.empty()
                       ? ReadHistory(flags, query)
                       : api::QueryService(EndpointOf(flags.service, flags.security), query, flags.top));
  flags.json ? PrintJson(session.out, records) : PrintText(session.out, records);
  return absl::OkStatus();
}

}  // namespace

void AddQuery(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("query", "Show the best records of a history");
  command->footer("With --model, tasks are sorted by their share of the network's time, the slowest first.");
  auto flags = std::make_shared<QueryFlags>();
  flags->history_flag = command->add_option("--history", flags->history, "History to read")->type_name("FILE");
  flags->service_flag =
      command
          ->add_option("--service", flags->service,
                       "Query this service instead of a file; of several, the one that answers is used")
          ->type_name("HOST:PORT[,HOST:PORT]");
  AddSecurityFlags(command, &flags->security);
  AddTargetFilter(command, &flags->target);
  AddWorkloadFilter(command, &flags->workload);
  command->add_option("--device", flags->device, "Only records of this device model")->type_name("NAME");
  AddNetworkFilter(command, &flags->model);
  AddWhole(command, "--top", &flags->top, {1, std::numeric_limits<int64_t>::max()},
           "How many records of each workload, target and device (default 1)");
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunQuery(*flags, session); }; });
}

}  // namespace diapason
