// diapason build: applies the best record of each task and makes a runnable package.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/build_latency.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "compiler/build/build_package.h"
#include "compiler/build/package.h"
#include "compiler/codegen/codegen.h"
#include "compiler/lower/lower.h"
#include "compiler/runtime/device.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/check.h"
#include "db/history.h"
#include "scheduler/objective.h"
#include "scheduler/space.h"
#include "service/records.h"
#include "service/service_client.h"
#include "service/target.h"
#include "service/tune_spec.h"

namespace diapason {
namespace {

struct BuildFlags {
  ModelFlags model;
  ImportFlags import;
  std::string target, history, service, out;
  double build_timeout = 120;
  bool json = false, no_measure = false;
  SecurityFlags security;
};

// What one placed task (Partition::programs) is built from, and what became of it.
struct TaskBuild {
  std::optional<TuningRecord> record;  // nothing: the default schedule
  std::vector<std::string> warnings;
  TaskKernels kernels;
  absl::Status status;
};

std::string WorkloadText(const Task& task, const Target& target) {
  return absl::StrCat("workload ", task.workload_key, " (", task.name, ") on target ", target.ToString());
}

// The best record of each task, by workload key, from the history or the service.
absl::StatusOr<std::map<std::string, TuningRecord>> ReadRecords(const BuildFlags& flags, const ResolvedTarget& resolved,
                                                                const std::vector<Task>& tasks) {
  std::vector<std::string> keys;
  for (const Task& task : tasks) keys.push_back(task.workload_key);
  const std::string target = resolved.target.ToString();
  // Records of another device are better than none where there is no such device; where there is one, its own count.
  const bool may_differ = !OpenDevice(resolved.target).ok();
  if (!flags.service.empty()) {
    ServiceClientOptions options;
    ASSIGN_OR_RETURN(options.credentials, DialWith("--service", flags.service, flags.security));
    ASSIGN_OR_RETURN(const std::unique_ptr<ServiceClient> client, ServiceClient::Connect(flags.service, options));
    return client->ForBuild(keys, target, resolved.facts.model, may_differ);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(flags.history, HistoryMode::kReadOnly));
  ASSIGN_OR_RETURN(const std::string model, ModelForBuild(*history, target, resolved.facts.model, may_differ));
  return RecordsForBuild(*history, keys, model, target);
}

// The record to build from. Only a verified one may be used (docs/architecture.md, decision 4).
void ChooseRecord(const std::map<std::string, TuningRecord>& records, const Target& target, const Task& task,
                  TaskBuild* build) {
  const auto best = records.find(task.workload_key);
  if (best != records.end() && best->second.verified == Verified::kOk) {
    build->record = best->second;
  } else if (best != records.end()) {
    build->warnings.push_back(absl::StrCat("the records of ", WorkloadText(task, target),
                                           " were not verified yet; the default schedule is used, tune again to have them verified"));
  } else {
    build->warnings.push_back(absl::StrCat("there is no record of ", WorkloadText(task, target),
                                           "; the default schedule is used, which may be slow"));
  }
}

// Seconds; 0: not known.
struct BuiltLatency {
  double tasks = 0;      // the sum of the tasks' times with their counts
  double expected = 0;   // with what runs side by side, corrected by what the history knows of the network
  double measured = 0;
};

// How the network is cut.
struct CutChoice {
  std::vector<int> ways;                                   // by boundary
  std::vector<std::pair<std::string, std::string>> other;  // boundaries that are not cut in the usual way, and how they are
};

// At each boundary the way whose records take least time together; the usual one where the records do not say. Libraries write
// no parts of larger tensors.
CutChoice ChooseCut(const Cuts& cuts, const std::map<std::string, TuningRecord>& records) {
  std::vector<double> seconds;
  std::vector<bool> by_library;
  for (const Task& task : cuts.partition.tasks) {
    const auto record = records.find(task.workload_key);
    const bool there = record != records.end() && record->second.verified == Verified::kOk;
    seconds.push_back(there ? MedianSeconds(*record->second.timing()) : 0);
    const absl::StatusOr<Schedule> schedule =
        there ? ParseSchedule(record->second.schedule) : absl::StatusOr<Schedule>(absl::NotFoundError("no record"));
    by_library.push_back(schedule.ok() && schedule->sketch.rfind("library/", 0) == 0);
  }
  CutChoice choice;
  choice.ways = BestWays(cuts, seconds, kWorthAnotherWay, [&](const CutWay& way) {
    return !way.writes_in_place ||
           std::none_of(way.tasks.begin(), way.tasks.end(), [&](const auto& one) { return by_library[one.first]; });
  });
  for (size_t b = 0; b < choice.ways.size(); ++b) {
    const Boundary& boundary = cuts.boundaries[b];
    if (choice.ways[b] != 0) choice.other.emplace_back(boundary.name, boundary.ways[choice.ways[b]].name);
  }
  return choice;
}

// How and for what programs are compiled.
struct CompileOptions {
  const ResolvedTarget& resolved;
  double timeout;
};

absl::StatusOr<TaskKernels> Compile(const Task& task, const OutputPlace& place, const Schedule& schedule,
                                    const CompileOptions& options) {
  const ResolvedTarget& resolved = options.resolved;
  ASSIGN_OR_RETURN(const LoweredProgram lowered, Lower(task.dag, schedule, resolved.target, resolved.facts, place));
  TaskKernels kernels;
  ASSIGN_OR_RETURN(kernels.program, CompileProgram(lowered, resolved.target, options.timeout));
  kernels.schedule = absl::StrCat(schedule.sketch, " [", absl::StrJoin(schedule.decisions, " "), "]");
  return kernels;
}

absl::StatusOr<TaskKernels> CompileRecord(const Task& task, const OutputPlace& place, const TuningRecord& record,
                                          const CompileOptions& options) {
  ASSIGN_OR_RETURN(const Schedule schedule, ParseSchedule(record.schedule));
  ASSIGN_OR_RETURN(TaskKernels kernels, Compile(task, place, schedule, options));
  kernels.record = record.id;
  kernels.estimated_seconds = MedianSeconds(*record.timing());
  return kernels;
}

void CompileTask(const Task& task, const OutputPlace& place, const CompileOptions& options, TaskBuild* build) {
  const ResolvedTarget& resolved = options.resolved;
  if (build->record.has_value()) {
    absl::StatusOr<TaskKernels> kernels = CompileRecord(task, place, *build->record, options);
    if (kernels.ok()) {
      build->kernels = *std::move(kernels);
      return;
    }
    build->warnings.push_back(absl::StrCat("record ", build->record->id, " of ", WorkloadText(task, resolved.target),
                                           " cannot be built here (", std::string(kernels.status().message()),
                                           "); the default schedule is used"));
    build->record.reset();
  }
  absl::StatusOr<Schedule> schedule = DefaultSchedule(task.dag, resolved.target, resolved.facts);
  absl::StatusOr<TaskKernels> kernels =
      schedule.ok() ? Compile(task, place, *schedule, options) : absl::StatusOr<TaskKernels>(schedule.status());
  if (kernels.ok()) {
    build->kernels = *std::move(kernels);
    build->kernels.schedule = "default: " + build->kernels.schedule;
  } else {
    build->status = absl::Status(kernels.status().code(), absl::StrCat("task ", task.name, " cannot be built: ",
                                                                       std::string(kernels.status().message())));
  }
}

// All tasks, on all processors.
void CompileAll(const Partition& partition, const CompileOptions& options, std::vector<TaskBuild>& builds) {
  std::atomic<size_t> next{0};
  auto work = [&] {
    for (size_t i = next++; i < builds.size(); i = next++) {
      const PlacedTask& placed = partition.programs[i];
      CompileTask(partition.tasks[placed.task], placed.place, options, &builds[i]);
    }
  };
  std::vector<std::jthread> threads;
  const size_t count = std::min<size_t>(builds.size(), std::max(1u, std::thread::hardware_concurrency()));
  for (size_t i = 0; i < count; ++i) threads.emplace_back(work);
}

// The libraries that the programs of any task call.
std::vector<Library> LibrariesOf(const std::vector<TaskBuild>& builds) {
  std::set<Library> called;
  for (const TaskBuild& build : builds)
    for (Library library : build.kernels.program.Libraries()) called.insert(library);
  return {called.begin(), called.end()};
}

void PrintJson(std::ostream& out, const BuildFlags& flags, const Partition& partition, const ResolvedTarget& resolved,
               const std::vector<TaskBuild>& builds, const CutChoice& cut, const BuiltLatency& latency) {
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (size_t i = 0; i < builds.size(); ++i) {
    const TaskKernels& kernels = builds[i].kernels;
    const PlacedTask& placed = partition.programs[i];
    tasks.push_back({{"id", placed.task + 1},
                     {"name", partition.tasks[placed.task].name},
                     {"weight", placed.weight},
                     {"workload", partition.tasks[placed.task].workload_key},
                     {"record", kernels.record >= 0 ? nlohmann::ordered_json(kernels.record) : nlohmann::ordered_json(nullptr)},
                     {"default", kernels.record < 0},
                     {"schedule", kernels.schedule}});
    if (!placed.place.whole()) tasks.back()["writes"] = placed.place.ToString();
    if (kernels.estimated_seconds > 0) tasks.back()["estimated_us"] = kernels.estimated_seconds * 1e6;
  }
  nlohmann::ordered_json libraries = nlohmann::ordered_json::array();
  for (Library library : LibrariesOf(builds)) libraries.push_back(NameOf(library));
  nlohmann::ordered_json other = nlohmann::ordered_json::array();
  for (const auto& [boundary, way] : cut.other) other.push_back({{"boundary", boundary}, {"way", way}});
  const auto microseconds = [](double seconds) {
    return seconds > 0 ? nlohmann::ordered_json(seconds * 1e6) : nlohmann::ordered_json(nullptr);
  };
  out << nlohmann::ordered_json{{"out", flags.out},
                                {"target", resolved.target.ToString()},
                                {"libraries", libraries},
                                {"other_ways", other},
                                {"tasks_us", microseconds(latency.tasks)},
                                {"estimated_us", microseconds(latency.expected)},
                                {"measured_us", microseconds(latency.measured)},
                                {"tasks", tasks}}
             .dump(2)
      << "\n";
}

void PrintText(std::ostream& out, const BuildFlags& flags, const Partition& partition, const std::vector<TaskBuild>& builds,
               const CutChoice& cut, const BuiltLatency& latency) {
  std::set<int> defaults;
  for (size_t i = 0; i < builds.size(); ++i) {
    if (builds[i].kernels.record < 0) defaults.insert(partition.programs[i].task);
  }
  const size_t tasks = partition.tasks.size();
  out << "built " << flags.out << ": " << Count(tasks, "task") << ", " << tasks - defaults.size()
      << " with the best record, " << defaults.size() << " with the default schedule";
  if (defaults.empty()) out << "; estimated latency " << Duration(latency.expected);
  if (latency.measured > 0) out << ", measured here " << Duration(latency.measured);
  for (Library library : LibrariesOf(builds)) out << "; needs " << TitleOf(library) << " where it runs";
  out << "\n";
  for (const auto& [boundary, way] : cut.other)
    out << "cut at " << boundary << ": " << way << ", which the history says is faster than the usual way\n";
}

// What the package should take, and takes: measured where all tasks have records and the device is here, and kept in the history.
absl::StatusOr<BuiltLatency> LatencyOf(const BuildFlags& flags, NetworkLatency network, double correction, Session& session) {
  ASSIGN_OR_RETURN(const Package package, Package::Open(flags.out));
  BuiltLatency latency;
  latency.tasks = package.manifest().estimated_seconds();
  latency.expected = package.manifest().latency_seconds;
  if (flags.no_measure || flags.history.empty() || latency.expected <= 0) return latency;
  ASSIGN_OR_RETURN(const std::optional<double> measured, MeasureLatency(flags.out, network.device_model));
  if (!measured.has_value()) return latency;
  latency.measured = *measured;
  network.measured = *measured;
  network.tasks = latency.tasks;
  network.modelled = latency.expected / correction;
  const absl::Status kept = KeepLatency(flags.history, network);
  if (!kept.ok()) Warn(session, absl::StrCat("later estimates do not learn from the measured latency: ", std::string(kept.message())));
  return latency;
}

absl::Status RunBuild(const BuildFlags& flags, Session& session) {
  if (!flags.history.empty() && !flags.service.empty()) {
    return absl::InvalidArgumentError("a build reads one history; give either --history or --service");
  }
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveTarget(flags.target));
  ASSIGN_OR_RETURN(const ImportedModel loaded, LoadAndCut(flags.model, flags.import, /*with_network=*/true));
  std::map<std::string, TuningRecord> records;
  const bool from_file = !flags.history.empty() && std::filesystem::exists(flags.history);
  if (!flags.history.empty() && !from_file) {
    Warn(session, absl::StrCat("there is no history ", flags.history, "; make one with `diapason tune`"));
  }
  if (from_file || !flags.service.empty()) {
    ASSIGN_OR_RETURN(records, ReadRecords(flags, resolved, loaded.cuts.partition.tasks));
  }
  const CutChoice cut = ChooseCut(loaded.cuts, records);
  ASSIGN_OR_RETURN(const Partition partition, PartitionAs(loaded.network, loaded.cuts, cut.ways));
  const std::vector<Task>& tasks = partition.tasks;
  const std::vector<PlacedTask>& programs = partition.programs;
  std::vector<TaskBuild> builds(programs.size());
  for (size_t i = 0; i < programs.size(); ++i)
    ChooseRecord(records, resolved.target, tasks[programs[i].task], &builds[i]);
  CompileAll(partition, {resolved, flags.build_timeout}, builds);
  PackageRequest request{loaded.network, partition, resolved.target, resolved.facts, {}};
  const NetworkLatency network{LatencyKey(NetworkName(flags.model.model), loaded.cuts.partition), resolved.target.ToString(),
                               resolved.facts.model};
  if (from_file) {
    ASSIGN_OR_RETURN(request.correction, CorrectionFor(flags.history, network));
  }
  std::set<std::string> warned;  // a task may be there in several places
  for (const TaskBuild& build : builds) {
    for (const std::string& warning : build.warnings)
      if (warned.insert(warning).second) Warn(session, warning);
    RETURN_IF_ERROR(build.status);
    request.tasks.push_back(build.kernels);
  }
  RETURN_IF_ERROR(BuildPackage(flags.out, request));
  ASSIGN_OR_RETURN(const BuiltLatency latency, LatencyOf(flags, network, request.correction, session));
  flags.json ? PrintJson(session.out, flags, partition, resolved, builds, cut, latency)
             : PrintText(session.out, flags, partition, builds, cut, latency);
  return absl::OkStatus();
}

}  // namespace

void AddBuild(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("build", "Make a runnable package with the best schedules of a history");
  command->footer(
      "A task without a verified record gets the default schedule and a warning. Where a network can be cut in several ways (a "
      "residual addition with either branch or apart, a concatenation in place or apart), the one whose records take least time "
      "together is built. No device is needed: cuda packages can be "
      "built where there is no GPU.");
  auto flags = std::make_shared<BuildFlags>();
  AddModelFlags(command, &flags->model);
  AddImportFlags(command, &flags->import);
  AddTargetFlag(command, &flags->target);
  command->add_option("--history", flags->history, "History with the records (default: none)")->type_name("FILE");
  command->add_option("--service", flags->service, "Ask this service for the records")->type_name("HOST:PORT");
  AddSecurityFlags(command, &flags->security);
  command->add_option("--out", flags->out, "Folder to make; a package there is replaced")->required()->type_name("DIR");
  AddNumber(command, "--build-timeout", &flags->build_timeout, 0, "Seconds to compile a task (default 120)");
  command->add_flag("--no-measure", flags->no_measure,
                    "Do not time the package where this machine has its device and the history all of its tasks; the history keeps "
                    "that time, by which later estimates of the network are corrected");
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunBuild(*flags, session); }; });
}

}  // namespace diapason
