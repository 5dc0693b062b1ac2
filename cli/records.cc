// diapason records: files of ready-made records.
#include "diapason/records.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/action.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"

namespace diapason {
namespace {

struct RecordsFlags {
  std::string history, target, out;
  std::vector<std::string> files, networks;
  int64_t keep = 2;
  bool json = false;
};

std::string Day(int64_t nanoseconds) {
  const Json instant = Instant(nanoseconds);
  return instant.is_string() ? instant.get<std::string>().substr(0, 10) : "-";
}

Json GroupJson(const api::RecordGroup& group) {
  return {{"file", group.file},
          {"target", group.target},
          {"device", group.device},
          {"record_count", group.record_count},
          {"workload_count", group.workload_count},
          {"network_names", group.networks},
          {"first_at", Instant(group.first_at)},
          {"last_at", Instant(group.last_at)},
          {"versions", group.versions}};
}

absl::Status RunList(const RecordsFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::vector<api::RecordGroup> groups, api::ListRecords(flags.files, flags.target));
  if (flags.json) {
    Json list = Json::array();
    for (const api::RecordGroup& group : groups) list.push_back(GroupJson(group));
    WriteDocument(session.out, {"record_files", 2}, {{"groups", list}});
    return absl::OkStatus();
  }
  TextTable table({{"target"}, {"device"}, {"records", true}, {"tasks", true}, {"measured"}, {"version"}, {"file"}});
  for (const api::RecordGroup& group : groups) {
    table.AddRow({group.target, group.device, absl::StrCat(group.record_count), absl::StrCat(group.workload_count),
                  Day(group.last_at), absl::StrJoin(group.versions, ", "), group.file});
  }
  session.out << table.ToString();
  for (const api::RecordGroup& group : groups)
    session.out << "\n"
                << group.target << " on " << group.device << ": " << absl::StrJoin(group.networks, ", ") << "\n";
  return absl::OkStatus();
}

absl::Status RunCheck(const RecordsFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::RecordProblems report, api::CheckRecords(flags.files));
  if (flags.json) {
    WriteDocument(session.out, {"record_files_check", 2},
                  {{"ok", report.ok()}, {"record_count", report.record_count}, {"problems", report.problems}});
  } else {
    for (const std::string& problem : report.problems) session.out << problem << "\n";
    if (report.ok())
      session.out << "ok, " << Count(report.record_count, "record") << " of " << Count(report.file_count, "file")
                  << "\n";
  }
  if (report.ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("there ", report.problems.size() == 1 ? "is " : "are ",
                                          Count(static_cast<int64_t>(report.problems.size()), "problem"),
                                          "; make the files again with `diapason records add`"));
}

absl::Status RunAdd(const RecordsFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const api::AddedRecords report,
                   api::AddRecords({flags.history, flags.out, flags.target, flags.networks, flags.keep}));
  if (flags.json) {
    WriteDocument(session.out, {"record_files_add", 2},
                  {{"file", flags.out}, {"record_count", report.record_count}, {"added", report.added}});
  } else {
    session.out << flags.out << " has " << Count(report.record_count, "record") << ", " << report.added
                << " of them new\n";
  }
  return absl::OkStatus();
}

}  // namespace

void AddRecords(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("records", "List, check and create files of ready-made records");
  command->footer(
      "Diapason comes with records of built-in networks on some devices. `build` uses them where the given histories "
      "have no record, and `tune` starts from them. They are JSON lines, as `diapason history export` writes them, in "
      "share/diapason/records beside the program's folder; the environment variable DIAPASON_RECORDS names another "
      "folder.");
  command->require_subcommand(1);
  auto flags = std::make_shared<RecordsFlags>();
  const auto add_files = [&](CLI::App* action) {
    action->add_option("FILE", flags->files, "Files of records (default: those that come with Diapason)")
        ->type_name("");
  };
  CLI::App* list = AddAction(command, chosen, flags, {"list", "What the files hold", RunList});
  add_files(list);
  AddTargetFilter(list, &flags->target);
  CLI::App* check =
      AddAction(command, chosen, flags,
                {"check", "Read the files, and replay and lower each schedule; nothing is executed", RunCheck});
  add_files(check);
  CLI::App* add = AddAction(
      command, chosen, flags,
      {"add", "Add the best verified records of a history to a file, without hosts and command lines", RunAdd});
  add->add_option("HISTORY", flags->history, "The history's file")->required()->type_name("");
  add->add_option("--out", flags->out, "File to create or to add to; the best of both sets of records are kept")
      ->required()
      ->type_name("FILE");
  AddTargetFilter(add, &flags->target);
  add->add_option("--model", flags->networks, "Only the tasks of this network; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME");
  AddWhole(add, "--keep", &flags->keep, {1, 1000}, "How many records of each workload, target and device (default 2)");
}

}  // namespace diapason
