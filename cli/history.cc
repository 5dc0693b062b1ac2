// diapason history: statistics, integrity, export, import, copies and pruning of a history.
#include "diapason/history.h"

#include <CLI/CLI.hpp>
#include <ctime>
#include <fstream>
#include <istream>
#include <limits>
#include <memory>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/action.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"

namespace diapason {
namespace {

constexpr char kJsonLines[] = "jsonl", kT4[] = "t4";  // formats of exports

struct HistoryFlags {
  std::string history, file, to, out, target, workload, model, format = kJsonLines;
  int64_t keep = 1;
  bool skip_damaged = false, with_host = false, json = false;
};

std::string TimeText(int64_t nanoseconds) {
  if (nanoseconds == 0) return "-";
  const std::time_t seconds = nanoseconds / 1'000'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &utc);
  return text;
}

Json InfoJson(const api::HistorySummary& info) {
  Json errors = Json::object(), workloads = Json::array(), devices = Json::array(), networks = Json::array();
  for (const auto& [kind, count] : info.errors) errors[kind] = count;
  for (const auto& w : info.workloads) {
    workloads.push_back({{"workload", w.workload},
                         {"task", w.task},
                         {"target", w.target},
                         {"device", w.device},
                         {"record_count", w.record_count},
                         {"failed", w.failed},
                         {"verified_count", w.verified_count},
                         {"best_us", w.best_us ? Json(*w.best_us) : Json(nullptr)}});
  }
  for (const auto& d : info.devices)
    devices.push_back({{"device", d.device}, {"uuid", d.uuid}, {"record_count", d.record_count}});
  for (const auto& n : info.networks) networks.push_back({{"network", n.network}, {"task_count", n.task_count}});
  return {{"schema_version", info.schema_version},
          {"file_bytes", info.file_bytes},
          {"record_count", info.record_count},
          {"failed", info.failed},
          {"runs", info.runs},
          {"first_at", Instant(info.first_at)},
          {"last_at", Instant(info.last_at)},
          {"errors", errors},
          {"workloads", workloads},
          {"devices", devices},
          {"networks", networks}};
}

void PrintInfo(std::ostream& out, const api::HistorySummary& info) {
  out << Count(info.record_count, "record") << " (" << info.failed << " failed) of " << Count(info.runs, "run") << ", "
      << Bytes(info.file_bytes) << ", schema " << info.schema_version << "\n"
      << "from " << TimeText(info.first_at) << " to " << TimeText(info.last_at) << "\n";
  for (const auto& device : info.devices) {
    out << "device   " << device.device << (device.uuid.empty() ? "" : " " + device.uuid) << ": "
        << Count(device.record_count, "record") << "\n";
  }
  for (const auto& network : info.networks)
    out << "network  " << network.network << ": " << Count(network.task_count, "task") << "\n";
  for (const auto& [kind, count] : info.errors) out << "error    " << kind << ": " << count << "\n";
  if (info.workloads.empty()) return;
  TextTable table(
      {{"task"}, {"records", true}, {"failed", true}, {"verified", true}, {"best us", true}, {"target"}, {"workload"}});
  for (const auto& w : info.workloads) {
    table.AddRow({w.task, absl::StrCat(w.record_count), absl::StrCat(w.failed), absl::StrCat(w.verified_count),
                  Digits(w.best_us.value_or(0)), w.target, w.workload});
  }
  out << "\n" << table.ToString();
}

absl::Status RunInfo(const HistoryFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::unique_ptr<api::History> history, api::History::Open(flags.history));
  ASSIGN_OR_RETURN(const api::HistorySummary info, history->Summary());
  if (flags.json) {
    WriteDocument(session.out, {"history_info", 2}, InfoJson(info));
  } else {
    PrintInfo(session.out, info);
  }
  return absl::OkStatus();
}

absl::Status RunCheck(const HistoryFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::HistoryProblems report, api::CheckHistory(flags.history));
  if (flags.json) {
    WriteDocument(session.out, {"history_check", 2},
                  {{"ok", report.ok()}, {"record_count", report.record_count}, {"problems", report.problems}});
  } else {
    for (const std::string& problem : report.problems) session.out << problem << "\n";
    if (report.ok()) session.out << "ok, " << Count(report.record_count, "record") << "\n";
  }
  if (report.ok()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(api::HistoryName(flags.history), " has ", Count(report.problems.size(), "problem"),
                   "; save what is whole with `diapason history export ", api::HistoryName(flags.history),
                   " --skip-damaged --out good.jsonl` and import that into a new file"));
}

absl::Status RunExport(const HistoryFlags& flags, Session& session) {
  api::HistoryExport options;
  options.format = flags.format;
  options.records = {flags.target, flags.workload, "", flags.model};
  options.skip_damaged = flags.skip_damaged;
  options.with_host = flags.with_host;
  const absl::StatusOr<api::ExportedRecords> report = flags.out.empty()
                                                          ? api::ExportHistory(flags.history, options, session.out)
                                                          : api::ExportHistoryToFile(flags.history, options, flags.out);
  if (flags.out.empty() && !session.out) return absl::OkStatus();  // RunCli says so, unless it is a pipe without reader
  RETURN_IF_ERROR(report.status());
  for (const std::string& damaged : report->damaged) Warn(session, damaged);
  if (flags.out.empty()) return absl::OkStatus();
  if (flags.json) {
    WriteDocument(session.out, {"history_export", 2},
                  {{"record_count", report->record_count}, {"damaged", report->damaged}});
  } else {
    session.out << "exported " << Count(report->record_count, "record") << " to " << flags.out << "\n";
  }
  return absl::OkStatus();
}

absl::Status RunImport(const HistoryFlags& flags, Session& session) {
  std::ifstream file;
  const bool from_file = !flags.file.empty() && flags.file != "-";
  if (from_file) {
    file.open(flags.file, std::ios::binary);
    if (!file)
      return absl::NotFoundError(
          absl::StrCat(flags.file, " cannot be read; name a file that `diapason history export` wrote"));
  } else if (session.environment.in == nullptr) {
    return absl::InvalidArgumentError("there is no input; name the file to import after the history");
  }
  std::istream& from = from_file ? file : *session.environment.in;
  ASSIGN_OR_RETURN(
      const api::ImportedRecords report,
      api::ImportHistory(flags.history, from, from_file ? flags.file : "standard input", flags.skip_damaged));
  for (const std::string& damaged : report.damaged) Warn(session, damaged);
  if (flags.json) {
    WriteDocument(session.out, {"history_import", 1},
                  {{"lines", report.lines},
                   {"added", report.added},
                   {"known", report.known},
                   {"updated", report.updated},
                   {"damaged", report.damaged}});
  } else {
    session.out << "imported " << Count(report.added, "record") << "; " << report.known << " were there already\n";
  }
  return absl::OkStatus();
}

absl::Status RunCopy(const HistoryFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::CopiedRecords report, api::CopyHistory(flags.history, flags.to));
  if (flags.json) {
    WriteDocument(session.out, {"history_copy", 1},
                  {{"added", report.added},
                   {"known", report.known},
                   {"updated", report.updated},
                   {"latencies", report.latencies}});
  } else {
    session.out << "copied " << Count(report.added, "record") << " to " << api::HistoryName(flags.to) << "; "
                << report.known << " were there already\n";
  }
  return absl::OkStatus();
}

absl::Status RunPrune(const HistoryFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::PrunedRecords report, api::PruneHistory(flags.history, flags.keep, flags.out));
  if (flags.json) {
    WriteDocument(session.out, {"history_prune", 1},
                  {{"kept", report.kept},
                   {"dropped", report.dropped},
                   {"bytes_before", report.bytes_before},
                   {"bytes_after", report.bytes_after}});
  } else {
    session.out << "kept " << Count(report.kept, "record") << " and dropped " << report.dropped << "; "
                << Bytes(report.bytes_before) << " before, " << Bytes(report.bytes_after) << " after\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddHistory(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("history", "Inspect, check, export, import, copy or prune a history");
  command->require_subcommand(1);
  auto flags = std::make_shared<HistoryFlags>();
  const auto add = [&](const char* name, const char* help, absl::Status (*body)(const HistoryFlags&, Session&)) {
    CLI::App* action = AddAction(command, chosen, flags, {name, help, body});
    action->add_option("HISTORY", flags->history, "The history: a file, or postgresql://...")
        ->required()
        ->type_name("");
    return action;
  };
  add("info", "What the history holds", RunInfo);
  add("check", "Read everything and report damage", RunCheck);

  CLI::App* write = add("export", "Write the records as JSON lines", RunExport);
  write
      ->add_option("--format", flags->format,
                   "jsonl: JSON lines, which `history import` reads. t4: one document of Kernel Tuner's T4 schema, for "
                   "other tools")
      ->capture_default_str()
      ->check(OneOf({kJsonLines, kT4}));
  write->add_option("--out", flags->out, "File to write (default: standard output)")->type_name("FILE");
  AddTargetFilter(write, &flags->target);
  AddWorkloadFilter(write, &flags->workload);
  AddNetworkFilter(write, &flags->model);
  write->add_flag("--skip-damaged", flags->skip_damaged,
                  "Skip records that cannot be read, instead of stopping at the first");
  write->add_flag("--with-host", flags->with_host, "Include the names of the hosts that measured");

  CLI::App* read = add("import", "Add the records of JSON lines", RunImport);
  read->add_option("FILE", flags->file, "File to read (default: standard input)")->type_name("");
  read->add_flag("--skip-damaged", flags->skip_damaged,
                 "Import the undamaged lines; without this flag, one damaged line rejects the whole file");

  CLI::App* copy = add("copy", "Add everything in a history to another, which is created if necessary", RunCopy);
  copy->add_option("TO", flags->to, "The other history: a file, or postgresql://...")->required()->type_name("");

  CLI::App* best = add("prune", "Keep only the best records", RunPrune);
  AddWhole(best, "--keep", &flags->keep, {1, std::numeric_limits<int64_t>::max()},
           "How many records of each workload, target and device (default 1)");
  best->add_option("--out", flags->out, "New file to write (default: the history itself)")->type_name("FILE");
}

}  // namespace diapason
