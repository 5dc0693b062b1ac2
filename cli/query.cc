// diapason query: the best records of a history.
#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "compiler/tensor/check.h"
#include "db/history.h"
#include "service/records.h"
#include "service/service_client.h"
#include "service/tune_spec.h"

namespace diapason {
namespace {

struct QueryFlags {
  std::string history, service, target, workload, device, model;
  int64_t top = 1;
  bool json = false;
  SecurityFlags security;
};

void PrintJson(std::ostream& out, const std::vector<TuningRecord>& records) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const TuningRecord& record : records) {
    list.push_back({{"id", record.id},
                    {"workload", record.workload_key},
                    {"task", record.task_name},
                    {"target", record.target},
                    {"device", record.device_model},
                    {"median_us", MedianSeconds(*record.timing()) * 1e6},
                    {"samples_us", nlohmann::ordered_json::array()},
                    {"raced_out", record.timing()->raced_out},
                    {"trial", record.trial},
                    {"verified", record.verified == Verified::kOk},
                    {"verification", VerifiedName(record.verified)},
                    {"view", record.view},
                    {"sketch", record.sketch},
                    {"seed", record.seed}});
    for (double sample : record.timing()->samples) list.back()["samples_us"].push_back(sample * 1e6);
  }
  out << nlohmann::ordered_json{{"records", list}}.dump(2) << "\n";
}

void PrintText(std::ostream& out, const std::vector<TuningRecord>& records) {
  TextTable table({{"id", true},
                   {"task"},
                   {"median us", true},
                   {"trial", true},
                   {"verified"},
                   {"sketch"},
                   {"target"},
                   {"device"},
                   {"workload"}});
  for (const TuningRecord& record : records) {
    table.AddRow({absl::StrCat(record.id), record.task_name, Digits(MedianSeconds(*record.timing()) * 1e6),
                  absl::StrCat(record.trial), VerifiedName(record.verified), record.sketch, record.target,
                  record.device_model, record.workload_key});
  }
  out << table.ToString() << Count(records.size(), "record") << "\n";
}

absl::StatusOr<std::vector<TuningRecord>> ReadHistory(const QueryFlags& flags, const RecordFilter& filter) {
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(flags.history, HistoryMode::kReadOnly));
  const absl::Status known = CheckNetwork(*history, filter.network, flags.history);
  if (absl::IsNotFound(known)) {
    return absl::NotFoundError(
        absl::StrCat(std::string(known.message()), "; `diapason history info ", flags.history, "` lists those it has"));
  }
  RETURN_IF_ERROR(known);
  return history->TopK(filter, flags.top);
}

absl::StatusOr<std::vector<TuningRecord>> AskService(const QueryFlags& flags, const RecordFilter& filter) {
  ServiceClientOptions options;
  ASSIGN_OR_RETURN(options.credentials, DialWith("--service", flags.service, flags.security));
  ASSIGN_OR_RETURN(const std::unique_ptr<ServiceClient> client, ServiceClient::Connect(flags.service, options));
  return client->Query(filter, flags.top);
}

absl::Status RunQuery(const QueryFlags& flags, Session& session) {
  if (flags.history.empty() == flags.service.empty()) {
    return absl::InvalidArgumentError("a query reads one history; give either --history or --service");
  }
  RecordFilter filter;
  filter.workload = flags.workload;
  filter.device_model = flags.device;
  if (!flags.target.empty()) {
    ASSIGN_OR_RETURN(const Target target, Target::Parse(flags.target));
    filter.target = target.ToString();
  }
  if (!flags.model.empty()) filter.network = NetworkName(flags.model);
  ASSIGN_OR_RETURN(const std::vector<TuningRecord> records,
                   flags.service.empty() ? ReadHistory(flags, filter) : AskService(flags, filter));
  flags.json ? PrintJson(session.out, records) : PrintText(session.out, records);
  return absl::OkStatus();
}

}  // namespace

void AddQuery(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("query", "Show the best records of a history");
  auto flags = std::make_shared<QueryFlags>();
  command->add_option("--history", flags->history, "History to read")->type_name("FILE");
  command->add_option("--service", flags->service, "Ask this service instead of a file")->type_name("HOST:PORT");
  AddSecurityFlags(command, &flags->security);
  command->add_option("--target", flags->target, "Only records of this target")->type_name("TARGET");
  command->add_option("--workload", flags->workload, "Only this workload: its key, or the key's beginning")
      ->type_name("KEY");
  command->add_option("--device", flags->device, "Only records of this device model")->type_name("NAME");
  command->add_option("--model", flags->model, "Only the tasks of this network")->type_name("NAME");
  AddWhole(command, "--top", &flags->top, 1, std::numeric_limits<int64_t>::max(),
           "How many of each workload, target and device (default 1)");
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunQuery(*flags, session); }; });
}

}  // namespace diapason
