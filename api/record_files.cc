// Files of records: what they hold, whether it is right, and records of a history for them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "api/compiler_hooks.h"
#include "api/import.h"
#include "api/record.h"
#include "base/check.h"
#include "base/json.h"
#include "base/replace_file.h"
#include "compiler/lower/lower.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/serialize.h"
#include "compiler/tensor/target.h"
#include "db/history.h"
#include "db/integrity.h"
#include "db/json_lines.h"
#include "db/prune.h"
#include "diapason/records.h"
#include "service/record_collection.h"
#include "worker/process/scratch.h"

namespace diapason::api {
namespace {

constexpr const char* kKinds[] = {"cpu", "cuda", "opencl"};

absl::StatusOr<std::vector<std::string>> ShippedFiles() {
  const std::string folder = ShippedRecordsFolder(Program());
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

absl::StatusOr<std::vector<std::string>> FilesOrShipped(const std::vector<std::string>& files) {
  if (files.empty()) return ShippedFiles();
  return files;
}

// What a RecordGroup is made of.
struct Group {
  int64_t records = 0;
  std::set<std::string> workloads, networks, versions;
  int64_t first_at = 0, last_at = 0;
};

std::vector<RecordGroup> GroupsOf(const std::string& file, const RecordCollection& records) {
  std::map<std::pair<std::string, std::string>, Group> groups;
  for (const RecordCollection::Entry& entry : records.entries()) {
    const TuningRecord& record = entry.record;
    Group& group = groups[{record.target, record.device_model}];
    ++group.records;
    group.workloads.insert(record.workload_key);
    for (const NetworkTask& task : entry.networks) group.networks.insert(task.network);
    if (entry.run.has_value()) group.versions.insert(entry.run->version);
    group.first_at = group.first_at == 0 ? record.created_at : std::min(group.first_at, record.created_at);
    group.last_at = std::max(group.last_at, record.created_at);
  }
  std::vector<RecordGroup> list;
  for (const auto& [place, group] : groups)
    list.push_back({file,
                    place.first,
                    place.second,
                    group.records,
                    static_cast<int64_t>(group.workloads.size()),
                    {group.networks.begin(), group.networks.end()},
                    {group.versions.begin(), group.versions.end()},
                    group.first_at,
                    group.last_at});
  return list;
}

// Whether a target's text begins as the flag says: "cuda" matches "cuda -arch=sm_90" too.
bool Matches(const std::string& target, const std::string& wanted) {
  return wanted.empty() || target == wanted || target.rfind(wanted + " ", 0) == 0;
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
void KeepBest(int64_t keep, KeptRecords& kept) {
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
  return ReplaceFile(path, [&](std::ostream& out) {
    for (const Kept* one : sorted) out << one->line << "\n";
    return absl::OkStatus();
  });
}

// The history's best verified records, by way of a copy that has no others.
absl::Status TakeBest(const RecordsToAdd& options, const std::string& folder, KeptRecords& kept) {
  ASSIGN_OR_RETURN(const auto history, ::diapason::History::Open(options.history, HistoryMode::kReadOnly));
  const std::string best = folder + "/best.db";
  RETURN_IF_ERROR(::diapason::PruneHistory(*history, options.keep, best).status());
  ASSIGN_OR_RETURN(const auto few, ::diapason::History::Open(best, HistoryMode::kReadOnly));
  std::vector<std::string> networks = options.networks;
  if (networks.empty()) networks.emplace_back();
  for (const std::string& network : networks) {
    ExportOptions how;
    ASSIGN_OR_RETURN(how.filter, FilterOf({options.target, "", "", network}));
    std::stringstream lines;
    ASSIGN_OR_RETURN(const ExportReport report, ExportJson(*few, lines, how));
    if (report.records == 0 && !network.empty())
      return absl::NotFoundError(absl::StrCat(options.history, " has no record of network ", network,
                                              "; `diapason history info ", options.history, "` lists those it has"));
    RETURN_IF_ERROR(Take(lines, options.history, kept));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<RecordGroup>> ListRecords(const std::vector<std::string>& files, const std::string& target) {
  ASSIGN_OR_RETURN(const RecordFilter wanted, FilterOf({target, "", "", ""}));
  ASSIGN_OR_RETURN(const std::vector<std::string> all, FilesOrShipped(files));
  std::vector<RecordGroup> groups;
  for (const std::string& file : all) {
    ASSIGN_OR_RETURN(const RecordCollection records, ReadFile(file));
    for (RecordGroup& group : GroupsOf(file, records))
      if (Matches(group.target, wanted.target)) groups.push_back(std::move(group));
  }
  return groups;
}

absl::StatusOr<RecordProblems> CheckRecords(const std::vector<std::string>& files) {
  ASSIGN_OR_RETURN(const std::vector<std::string> all, FilesOrShipped(files));
  RecordProblems report;
  report.file_count = static_cast<int64_t>(all.size());
  for (const std::string& file : all) {
    const absl::StatusOr<RecordCollection> records = ReadFile(file);
    if (absl::IsInvalidArgument(records.status())) {
      report.problems.emplace_back(records.status().message());
      continue;
    }
    RETURN_IF_ERROR(records.status());
    for (const RecordCollection::Entry& entry : records->entries()) {
      ++report.record_count;
      if (const absl::Status status = CheckEntry(entry); !status.ok())
        report.problems.push_back(absl::StrCat("record ", entry.record.uuid, " of ", entry.record.task_name, " in ",
                                               file, ": ", status.message()));
    }
  }
  return report;
}

absl::StatusOr<AddedRecords> AddRecords(const RecordsToAdd& options) {
  RETURN_IF_ERROR(CheckKeep(options.keep));
  KeptRecords kept;
  if (std::ifstream in(options.out, std::ios::binary); in) RETURN_IF_ERROR(Take(in, options.out, kept));
  std::set<std::string> before;
  for (const auto& [uuid, one] : kept) before.insert(uuid);
  ASSIGN_OR_RETURN(const std::unique_ptr<ScratchFolder> scratch, ScratchFolder::Create());
  RETURN_IF_ERROR(TakeBest(options, scratch->path(), kept));
  KeepBest(options.keep, kept);
  RETURN_IF_ERROR(WriteKept(kept, options.out));
  AddedRecords report{static_cast<int64_t>(kept.size()), 0};
  for (const auto& [uuid, one] : kept) report.added += before.contains(uuid) ? 0 : 1;
  return report;
}

}  // namespace diapason::api
