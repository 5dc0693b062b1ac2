// diapason records: the records that come with the program, and files of such.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/import.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/action.h"
#include "cli/command.h"
#include "cli/compiler_hooks.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "compiler/lower/lower.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/serialize.h"
#include "compiler/tensor/target.h"
#include "db/history.h"
#include "db/integrity.h"
#include "db/json_lines.h"
#include "db/prune.h"
#include "service/record_collection.h"
#include "service/tune_spec.h"
#include "worker/process/scratch.h"

namespace diapason {
namespace {

constexpr const char* kKinds[] = {"cpu", "cuda", "opencl"};

struct RecordsFlags {
  std::string history, target, out;
  std::vector<std::string> files, models;
  int64_t keep = 2;
  bool json = false;
};

// The records of one target and device in one file.
struct Group {
  std::string file, target, device;
  int64_t records = 0;
  std::set<std::string> workloads, networks, versions;
  int64_t first_at = 0, last_at = 0;  // Unix nanoseconds
};

absl::StatusOr<std::vector<std::string>> ShippedFiles() {
  const std::string folder = ShippedRecordsFolder(api::Program());
  std::vector<std::string> files;
  for (const char* kind : kKinds)
    for (std::string& file : RecordFiles(folder, kind)) files.push_back(std::move(file));
  if (!files.empty()) return files;
  return absl::NotFoundError(absl::StrCat(
      "no records come with this program", folder.empty() ? "" : absl::StrCat(" (there are none in '", folder, "')"),
      "; name files of them, or their folder in the environment variable DIAPASON_RECORDS"));
}

absl::StatusOr<RecordCollection> ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, " cannot be read; name a file of records"));
  RecordCollection records;
  RETURN_IF_ERROR(records.Read(in, path));
  return records;
}

std::vector<Group> GroupsOf(const std::string& file, const RecordCollection& records) {
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const RecordCollection::Entry& entry : records.entries()) {
    const TuningRecord& record = entry.record;
    Group& group = groups[{record.target, record.device_model}];
    group.file = file;
    group.target = record.target;
    group.device = record.device_model;
    ++group.records;
    group.workloads.insert(record.workload_key);
    for (const NetworkTask& task : entry.networks) group.networks.insert(task.network);
    if (entry.run.has_value()) group.versions.insert(entry.run->version);
    group.first_at = group.first_at == 0 ? record.created_at : std::min(group.first_at, record.created_at);
    group.last_at = std::max(group.last_at, record.created_at);
  }
  std::vector<Group> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

// Whether a target's text begins as the flag says: "cuda" matches "cuda -arch=sm_90" too.
bool Matches(const std::string& target, const std::string& wanted) {
  return wanted.empty() || target == wanted || target.rfind(wanted + " ", 0) == 0;
}

absl::StatusOr<std::string> Canonical(const std::string& target) {
  if (target.empty()) return target;
  ASSIGN_OR_RETURN(const Target parsed, Target::Parse(target));
  return parsed.ToString();
}

std::string Day(int64_t nanoseconds) {
  const Json instant = Instant(nanoseconds);
  return instant.is_string() ? instant.get<std::string>().substr(0, 10) : "-";
}

Json GroupJson(const Group& group) {
  return {{"file", group.file},
          {"target", group.target},
          {"device", group.device},
          {"record_count", group.records},
          {"workload_count", group.workloads.size()},
          {"network_names", group.networks},
          {"first_at", Instant(group.first_at)},
          {"last_at", Instant(group.last_at)},
          {"versions", group.versions}};
}

absl::Status RunList(const RecordsFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const std::string target, Canonical(flags.target));
  std::vector<std::string> files = flags.files;
  if (files.empty()) {
    ASSIGN_OR_RETURN(files, ShippedFiles());
  }
  std::vector<Group> groups;
  for (const std::string& file : files) {
    ASSIGN_OR_RETURN(const RecordCollection records, ReadFile(file));
    for (Group& group : GroupsOf(file, records))
      if (Matches(group.target, target)) groups.push_back(std::move(group));
  }
  if (flags.json) {
    Json list = Json::array();
    for (const Group& group : groups) list.push_back(GroupJson(group));
    WriteDocument(session.out, {"record_files", 2}, {{"groups", list}});
    return absl::OkStatus();
  }
  TextTable table({{"target"}, {"device"}, {"records", true}, {"tasks", true}, {"measured"}, {"version"}, {"file"}});
  for (const Group& group : groups) {
    table.AddRow({group.target, group.device, absl::StrCat(group.records), absl::StrCat(group.workloads.size()),
                  Day(group.last_at), absl::StrJoin(group.versions, ", "), group.file});
  }
  session.out << table.ToString();
  for (const Group& group : groups)
    session.out << "\n"
                << group.target << " on " << group.device << ": " << absl::StrJoin(group.networks, ", ") << "\n";
  return absl::OkStatus();
}

// What the lowering says of a record's schedule; it was replayed before.
absl::Status Lowers(const TuningRecord& record) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(record.target));
  ASSIGN_OR_RETURN(const ComputeDag dag, ParseDag(record.workload));
  ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(record.schedule));
  return Lower(dag, schedule, target, DefaultFacts(target)).status();
}

// What is wrong with a record for others; OK: nothing.
absl::Status CheckEntry(const RecordCollection::Entry& entry) {
  static const auto* const hooks = new CheckHooks(CompilerHooks());
  const TuningRecord& record = entry.record;
  ASSIGN_OR_RETURN(const std::string key, hooks->workload_key(record.workload));
  if (key != record.workload_key)
    return absl::DataLossError(absl::StrCat("its workload has the key ", key, " and not ", record.workload_key));
  RETURN_IF_ERROR(hooks->schedule(record));
  if (hooks->configuration_hash(record) != record.configuration_hash)
    return absl::DataLossError("its configuration does not have the hash that it stores");
  RETURN_IF_ERROR(Lowers(record));
  if (entry.run.has_value() && !entry.run->host.empty())
    return absl::DataLossError("it names the host that it was measured on");
  return absl::OkStatus();
}

absl::Status RunCheck(const RecordsFlags& flags, Session& session) {
  std::vector<std::string> files = flags.files;
  if (files.empty()) {
    ASSIGN_OR_RETURN(files, ShippedFiles());
  }
  int64_t checked = 0;
  std::vector<std::string> problems;
  for (const std::string& file : files) {
    absl::StatusOr<RecordCollection> records = ReadFile(file);
    if (absl::IsInvalidArgument(records.status())) {
      problems.emplace_back(records.status().message());
      continue;
    }
    RETURN_IF_ERROR(records.status());
    for (const RecordCollection::Entry& entry : records->entries()) {
      ++checked;
      if (const absl::Status status = CheckEntry(entry); !status.ok())
        problems.push_back(absl::StrCat("record ", entry.record.uuid, " of ", entry.record.task_name, " in ", file,
                                        ": ", status.message()));
    }
  }
  if (flags.json) {
    WriteDocument(session.out, {"record_files_check", 2},
                  {{"ok", problems.empty()}, {"record_count", checked}, {"problems", problems}});
  } else {
    for (const std::string& problem : problems) session.out << problem << "\n";
    if (problems.empty())
      session.out << "ok, " << Count(checked, "record") << " of " << Count(static_cast<int64_t>(files.size()), "file")
                  << "\n";
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("there ", problems.size() == 1 ? "is " : "are ",
                                          Count(static_cast<int64_t>(problems.size()), "problem"),
                                          "; make the files again with `diapason records add`"));
}

// A record with its line, from which the host and the command line were removed.
struct Kept {
  TuningRecord record;
  std::string line;
};
using KeptRecords = std::map<std::string, Kept>;  // by uuid

absl::Status Take(std::istream& in, const std::string& name, KeptRecords& kept) {
  return ReadUsableRecords(in, name, [&](HistoryLine line, const std::string& text) {
    Json json = ParseJson(text);
    json["format"] = kLineFormat;
    json.erase("run");
    if (const std::optional<TuningRun>& run = line.run; run.has_value())
      json["run"] = {{"uuid", run->uuid},        {"command_line", ""},
                     {"seed", run->seed},        {"host", ""},
                     {"version", run->version},  {"started_at", run->started_at},
                     {"ended_at", run->ended_at}};
    const std::string uuid = line.record->uuid;
    kept[uuid] = {*std::move(line.record), JsonText(json)};
  });
}

// The best of each workload, target and device.
void Prune(int64_t keep, KeptRecords& kept) {
  using Place = std::tuple<bool, double, std::string>;
  std::map<std::tuple<std::string, std::string, std::string>, std::set<Place>> groups;
  for (const auto& [uuid, one] : kept)
    groups[{one.record.workload_key, one.record.target, one.record.device_model}].insert(
        {one.record.timing()->stopped_early, MedianSeconds(*one.record.timing()), uuid});
  for (const auto& [key, places] : groups) {
    int64_t rank = 0;
    for (const Place& place : places)
      if (++rank > keep) kept.erase(std::get<2>(place));
  }
}

absl::Status WriteKept(const KeptRecords& kept, const std::string& path) {
  std::vector<const Kept*> sorted;
  for (const auto& [uuid, one] : kept) sorted.push_back(&one);
  std::sort(sorted.begin(), sorted.end(), [](const Kept* a, const Kept* b) {
    const auto place = [](const TuningRecord& r) {
      return std::tie(r.target, r.device_model, r.task_name, r.workload_key, r.uuid);
    };
    return place(a->record) < place(b->record);
  });
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  for (const Kept* one : sorted) file << one->line << "\n";
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(unfinished, path, error);
  if (file && !error) return absl::OkStatus();
  std::filesystem::remove(unfinished, error);
  return absl::PermissionDeniedError(absl::StrCat(path, " cannot be written; name another file with --out"));
}

// The history's best verified records, by way of a copy that has no others.
absl::Status TakeBest(const RecordsFlags& flags, const std::string& folder, KeptRecords& kept) {
  ASSIGN_OR_RETURN(const auto history, History::Open(flags.history, HistoryMode::kReadOnly));
  const std::string best = folder + "/best.db";
  RETURN_IF_ERROR(PruneHistory(*history, flags.keep, best).status());
  ASSIGN_OR_RETURN(const auto few, History::Open(best, HistoryMode::kReadOnly));
  std::vector<std::string> models = flags.models;
  if (models.empty()) models.emplace_back();
  for (const std::string& model : models) {
    ExportOptions options;
    ASSIGN_OR_RETURN(options.filter.target, Canonical(flags.target));
    if (!model.empty()) options.filter.network = NetworkName(model);
    std::stringstream lines;
    ASSIGN_OR_RETURN(const ExportReport report, ExportJson(*few, lines, options));
    if (report.records == 0 && !model.empty())
      return absl::NotFoundError(absl::StrCat(flags.history, " has no record of network ", model,
                                              "; `diapason history info ", flags.history, "` lists those it has"));
    RETURN_IF_ERROR(Take(lines, flags.history, kept));
  }
  return absl::OkStatus();
}

absl::Status RunAdd(const RecordsFlags& flags, Session& session) {
  KeptRecords kept;
  if (std::ifstream in(flags.out, std::ios::binary); in) RETURN_IF_ERROR(Take(in, flags.out, kept));
  std::set<std::string> before;
  for (const auto& [uuid, one] : kept) before.insert(uuid);
  ASSIGN_OR_RETURN(const std::unique_ptr<ScratchFolder> scratch, ScratchFolder::Create());
  RETURN_IF_ERROR(TakeBest(flags, scratch->path(), kept));
  Prune(flags.keep, kept);
  RETURN_IF_ERROR(WriteKept(kept, flags.out));
  int64_t added = 0;
  for (const auto& [uuid, one] : kept) added += before.contains(uuid) ? 0 : 1;
  if (flags.json) {
    WriteDocument(session.out, {"record_files_add", 2},
                  {{"file", flags.out}, {"record_count", kept.size()}, {"added", added}});
  } else {
    session.out << flags.out << " has " << Count(static_cast<int64_t>(kept.size()), "record") << ", " << added
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
  add->add_option("--model", flags->models, "Only the tasks of this network; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("NAME");
  AddWhole(add, "--keep", &flags->keep, {1, 1000}, "How many records of each workload, target and device (default 2)");
}

}  // namespace diapason
