#include <cmath>
#include <map>
#include <ostream>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/json.h"
#include "db/history_database.h"
#include "db/json_line.h"
#include "db/json_lines.h"
#include "db/text.h"

namespace diapason {
namespace {

Json RunJson(const TuningRun& run) {
  return {{"uuid", run.uuid},       {"command_line", run.command_line}, {"seed", run.seed},        {"host", run.host},
          {"version", run.version}, {"started_at", run.started_at},     {"ended_at", run.ended_at}};
}

// JSON has no infinities.
Json RealJson(double value) {
  if (std::isfinite(value)) return value;
  return value > 0 ? "inf" : "-inf";
}

Json OutcomeJson(const Timing& timing) {
  return {{"samples", timing.samples},
          {"number", timing.number},
          {"raced_out", timing.stopped_early},
          {"build_seconds", timing.build_seconds},
          {"run_seconds", timing.run_seconds}};
}

Json OutcomeJson(const MeasureError& error) {
  return {{"kind", ErrorKindName(error.kind)}, {"stage", StageName(error.stage)}, {"text", error.text}};
}

// The values of parameters with their names.
Json NamedConfiguration(const TuningRecord& record, const std::vector<std::string>& names) {
  Json list = Json::array();
  for (size_t i = 0; i < names.size(); ++i) list.push_back({{"name", names[i]}, {"value", record.configuration[i]}});
  return list;
}

Json RecordJson(const TuningRecord& record, const ExportOptions& options) {
  Json json;
  json["format"] = options.program.empty() ? kLineFormat : kHeaderFormat;
  json["uuid"] = record.uuid;
  json["workload_key"] = record.workload_key;
  json["task_name"] = record.task_name;
  json["target"] = record.target;
  json["device_model"] = record.device_model;
  json["device_uuid"] = record.device_uuid;
  json["view"] = record.rewrite;
  json["sketch"] = record.sketch;
  json["decisions"] = record.configuration;
  json["decision_hash"] = Hex64(record.configuration_hash);
  if (options.names) {
    const std::vector<std::string> names = options.names(record);
    if (names.size() == record.configuration.size()) json["configuration"] = NamedConfiguration(record, names);
  }
  if (const Timing* timing = record.timing()) json["timing"] = OutcomeJson(*timing);
  if (const MeasureError* error = record.error()) json["error"] = OutcomeJson(*error);
  if (record.predicted.has_value()) json["predicted"] = *record.predicted;
  json["seed"] = record.seed;
  json["trial"] = record.trial;
  json["clocks"] = {
      {"sm_mhz", record.clocks.sm_mhz}, {"memory_mhz", record.clocks.memory_mhz}, {"cpu_mhz", record.clocks.cpu_mhz}};
  json["driver"] = record.driver;
  json["compiler"] = record.compiler;
  json["created_at"] = record.created_at;
  json["verified"] = VerifiedName(record.verified);
  if (record.max_error.has_value()) json["max_error"] = RealJson(*record.max_error);
  if (!record.verify_text.empty()) json["verify_text"] = record.verify_text;
  json["schedule"] = Base64Encode(record.schedule);
  json["checksum"] = Hex64(RecordChecksum(record));
  return json;
}

// The tables that lines repeat, read once.
struct Context {
  std::map<int64_t, Json> runs;          // by id
  std::map<std::string, Json> networks;  // by workload key
  // What a line has carried.
  std::set<int64_t> runs_written;
  std::set<std::string> workloads_written;
};

absl::Status ReadContext(Database& db, const ExportOptions& options, Context& context) {
  ASSIGN_OR_RETURN(Statement runs, db.Prepare(kSelectRuns));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, runs.Step());
    if (!row) break;
    ASSIGN_OR_RETURN(TuningRun run, ReadRun(runs));
    if (!options.with_host) run.host.clear();
    context.runs[run.id] = RunJson(run);
  }
  ASSIGN_OR_RETURN(Statement networks,
                   db.Prepare("SELECT network, workload_key, task_name, weight FROM networks ORDER BY network"));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, networks.Step());
    if (!row) return absl::OkStatus();
    context.networks[networks.Bytes(1)].push_back(
        {{"network", networks.Bytes(0)}, {"task_name", networks.Bytes(2)}, {"weight", networks.Real(3)}});
  }
}

void AddWorkload(Json& json, const Context& context, const std::string& key, const std::string& dag) {
  json["workload"] = Base64Encode(dag);
  const auto links = context.networks.find(key);
  if (links != context.networks.end()) json["networks"] = links->second;
}

absl::Status WriteLine(std::ostream& out, const Json& json) {
  out << JsonText(json) << '\n';
  if (out.good()) return absl::OkStatus();
  return absl::ResourceExhaustedError("the export cannot be written; check the space on its disk and try again");
}

absl::Status ExportRecord(std::ostream& out, const TuningRecord& record, const ExportOptions& options,
                          Context& context) {
  Json json = RecordJson(record, options);
  const auto run = context.runs.find(record.run_id);
  if (run != context.runs.end()) json["run"] = options.program.empty() ? run->second : run->second["uuid"];
  AddWorkload(json, context, record.workload_key, record.workload);
  RETURN_IF_ERROR(WriteLine(out, json));
  context.runs_written.insert(record.run_id);
  context.workloads_written.insert(record.workload_key);
  return absl::OkStatus();
}

bool IsWhole(const RecordFilter& filter) {
  return filter.target.empty() && filter.workload.empty() && filter.device_model.empty() && filter.network.empty();
}

// The first line: the program, and the runs of what follows.
absl::Status ExportHeader(Database& db, std::ostream& out, const ExportOptions& options, Context& context) {
  if (!IsWhole(options.filter)) {
    std::set<int64_t> wanted;
    ExportReport ignored;
    const auto note = [&](const TuningRecord& record) {
      wanted.insert(record.run_id);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(ScanRecords(db, options, note, ignored));
    std::erase_if(context.runs, [&](const auto& run) { return !wanted.contains(run.first); });
  }
  Json runs = Json::array();
  for (const auto& [id, run] : context.runs) {
    runs.push_back(run);
    context.runs_written.insert(id);
  }
  return WriteLine(out, {{"format", kHeaderFormat}, {"program", options.program}, {"runs", runs}});
}

// Runs and workloads that no line has carried.
absl::Status ExportRest(Database& db, std::ostream& out, const ExportOptions& options, const Context& context) {
  const int64_t format = options.program.empty() ? kLineFormat : kHeaderFormat;
  for (const auto& [id, run] : context.runs) {
    if (context.runs_written.count(id) == 0) RETURN_IF_ERROR(WriteLine(out, {{"format", kLineFormat}, {"run", run}}));
  }
  ASSIGN_OR_RETURN(Statement workloads, db.Prepare("SELECT workload_key, dag FROM workloads ORDER BY workload_key"));
  while (true) {
    ASSIGN_OR_RETURN(const bool row, workloads.Step());
    if (!row) return absl::OkStatus();
    const std::string key = workloads.Bytes(0);
    if (context.workloads_written.count(key) != 0) continue;
    Json json = {{"format", format}, {"workload_key", key}};
    AddWorkload(json, context, key, workloads.Bytes(1));
    RETURN_IF_ERROR(WriteLine(out, json));
  }
}

}  // namespace

absl::StatusOr<ExportReport> ExportJson(History& history, std::ostream& out, const ExportOptions& options) {
  HistoryDatabase& database = history.database();
  MutexLock lock(database.mu);
  Database& db = *database.db;
  ASSIGN_OR_RETURN(Transaction snapshot, Transaction::Begin(&db, /*for_writing=*/false));
  ExportReport report;
  Context context;
  absl::Status status = ReadContext(db, options, context);
  if (!options.skip_damaged) RETURN_IF_ERROR(status);
  if (!status.ok()) report.damaged.push_back("the runs or networks cannot be read completely");
  if (!options.program.empty()) RETURN_IF_ERROR(ExportHeader(db, out, options, context));
  RETURN_IF_ERROR(ScanRecords(
      db, options, [&](const TuningRecord& record) { return ExportRecord(out, record, options, context); }, report));
  if (IsWhole(options.filter)) {
    status = ExportRest(db, out, options, context);
    if (!status.ok() && !(options.skip_damaged && absl::IsDataLoss(status))) return status;
    if (!status.ok()) report.damaged.push_back("the workloads without records cannot be read completely");
  }
  out.flush();
  if (!out.good()) return WriteLine(out, {});
  return report;
}

}  // namespace diapason
