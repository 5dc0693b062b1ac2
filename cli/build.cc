// diapason build: applies the best record of each task and makes a runnable package.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <set>

#include "absl/strings/str_cat.h"
#include "cli/build_latency.h"
#include "cli/check_report.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "compiler/build/build_package.h"
#include "compiler/build/package.h"
#include "compiler/runtime/device.h"
#include "compiler/tensor/check.h"
#include "db/history.h"
#include "service/local_judge.h"
#include "service/network_assembly.h"
#include "service/network_check.h"
#include "service/records.h"
#include "service/service_client.h"
#include "service/target.h"
#include "service/tune_spec.h"

namespace diapason {
namespace {

struct BuildFlags {
  ModelFlags model;
  ImportFlags import;
  std::string target, history, service, out, mask;
  double build_timeout = 120;
  bool json = false, no_check = false, no_measure = false;
  SecurityFlags security;
};

std::string WorkloadText(const Task& task, const Target& target) {
  return absl::StrCat("workload ", task.workload_key, " (", task.name, ") on target ", target.ToString());
}

// The records of --history or --service. What is found of them goes into the history; of a service's, which cannot be written from here,
// and of a history that may not be written, it is remembered for this build.
class BuildShelf : public RecordShelf {
 public:
  // `may_differ`: records of another device are better than none.
  BuildShelf(const BuildFlags& flags, const ResolvedTarget& target, bool may_differ, Session& session)
      : flags_(flags), target_(target), may_differ_(may_differ), session_(session) {}

  absl::StatusOr<RecordsByWorkload> Best(const std::vector<std::string>& workload_keys) override {
    ASSIGN_OR_RETURN(RecordsByWorkload records, Read(workload_keys));
    std::erase_if(records, [&](const auto& one) { return refuted_.contains(one.second.id); });
    return records;
  }

  absl::Status SetVerified(const TuningRecord&, const NetworkJudge::Verdict&) override { return absl::OkStatus(); }

  absl::Status MarkWrongInNetwork(const TuningRecord& record, double max_error, const std::string& evidence) override {
    refuted_.insert(record.id);
    if (!flags_.service.empty()) {
      Warn(session_, absl::StrCat("record ", record.id, " is the service's and cannot be marked from here; `diapason submit` of the network "
                                  "has the service check and mark it"));
      return absl::OkStatus();
    }
    const absl::StatusOr<std::unique_ptr<History>> history = History::Open(flags_.history, HistoryMode::kReadWrite);
    const absl::Status marked = history.ok() ? (*history)->MarkWrongInNetwork(record.id, max_error, evidence) : history.status();
    if (!marked.ok()) Warn(session_, absl::StrCat("record ", record.id, " is not marked in the history: ", marked.message()));
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<RecordsByWorkload> Read(const std::vector<std::string>& keys) {
    const std::string target = target_.target.ToString();
    if (!flags_.service.empty()) {
      if (client_ == nullptr) {
        ServiceClientOptions options;
        ASSIGN_OR_RETURN(options.credentials, DialWith("--service", flags_.service, flags_.security));
        ASSIGN_OR_RETURN(client_, ServiceClient::Connect(flags_.service, options));
      }
      return client_->ForBuild(keys, target, target_.facts.model, may_differ_);
    }
    if (flags_.history.empty() || !std::filesystem::exists(flags_.history)) return RecordsByWorkload();
    ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(flags_.history, HistoryMode::kReadOnly));
    ASSIGN_OR_RETURN(const std::string model, ModelForBuild(*history, target, target_.facts.model, may_differ_));
    return RecordsForBuild(*history, keys, model, target);
  }

  const BuildFlags& flags_;
  const ResolvedTarget& target_;
  const bool may_differ_;
  Session& session_;
  std::unique_ptr<ServiceClient> client_;
  std::set<int64_t> refuted_;
};

// Why tasks get the default schedule, each once. `told`: their workloads so far.
void WarnOfDefaults(const Assembly& assembly, const RecordsByWorkload& records, const AssemblyCompiler& compiler,
                    const Target& target, std::set<std::string>& told, Session& session) {
  for (size_t i = 0; i < assembly.records.size(); ++i) {
    const Task& task = assembly.partition.tasks[i];
    if (!told.insert(task.workload_key).second) continue;
    const std::optional<TuningRecord>& record = assembly.records[i];
    if (record.has_value()) {
      const auto why = compiler.unusable().find(record->id);
      if (why == compiler.unusable().end()) continue;
      Warn(session, absl::StrCat("record ", record->id, " of ", WorkloadText(task, target), " cannot be built here (", why->second,
                                 "); the default schedule is used"));
    } else if (records.contains(task.workload_key)) {
      Warn(session, absl::StrCat("the records of ", WorkloadText(task, target),
                                 " were not verified yet; the default schedule is used, tune again to have them verified"));
    } else {
      Warn(session, absl::StrCat("there is no record of ", WorkloadText(task, target),
                                 "; the default schedule is used, which may be slow"));
    }
  }
}

// Seconds; 0: not known.
struct BuiltLatency {
  double tasks = 0;      // the sum of the tasks' times with their counts
  double expected = 0;   // by what the network was measured to take, else with what runs side by side
  double measured = 0;
};

// What is built at last.
struct Built {
  Assembly assembly;
  std::vector<TaskKernels> kernels;         // by program of the partition
  std::optional<NetworkCheckReport> check;  // nothing: it was not asked for, or there is no device here
  PlanSymbols symbols;
  NetworkLatency network;  // by which the history knows the plan
  BuiltLatency latency;
};

nlohmann::ordered_json JsonOf(const Built& built) {
  const Partition& partition = built.assembly.partition;
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  for (size_t i = 0; i < built.kernels.size(); ++i) {
    const TaskKernels& kernels = built.kernels[i];
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
  nlohmann::ordered_json other = nlohmann::ordered_json::array();
  for (const auto& [boundary, way] : built.assembly.other) other.push_back({{"boundary", boundary}, {"way", way}});
  const auto microseconds = [](double seconds) {
    return seconds > 0 ? nlohmann::ordered_json(seconds * 1e6) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json report{{"other_ways", other},
                                {"tasks_us", microseconds(built.latency.tasks)},
                                {"estimated_us", microseconds(built.latency.expected)},
                                {"measured_us", microseconds(built.latency.measured)},
                                {"tasks", tasks}};
  if (built.check.has_value()) report["check"] = CheckJson(*built.check);
  if (built.symbols.sizes.empty()) return report;
  report["sizes"] = built.symbols.sizes;
  report["padding"] = nlohmann::ordered_json::object();
  for (const auto& [symbol, padding] : built.symbols.padding) {
    report["padding"][symbol] = {{"harmless", padding.why_not.empty()}, {"least", padding.least}, {"why_not", padding.why_not}};
  }
  return report;
}

// Kernels of a package with several plans.
struct KernelCount {
  size_t used = 0, stored = 0;
};

KernelCount CountKernels(const Package& package) {
  KernelCount count;
  std::set<std::string> files;
  for (const PackageManifest& plan : package.plans())
    for (const PackageTask& task : plan.tasks) {
      ++count.used;
      files.insert(task.file);
    }
  count.stored = files.size();
  return count;
}

void PrintJson(std::ostream& out, const BuildFlags& flags, const ResolvedTarget& resolved, const std::vector<Built>& plans, const Package& package) {
  nlohmann::ordered_json libraries = nlohmann::ordered_json::array();
  for (Library library : package.manifest().libraries) libraries.push_back(NameOf(library));
  nlohmann::ordered_json report{{"out", flags.out}, {"target", resolved.target.ToString()}, {"libraries", libraries}};
  if (plans.front().symbols.sizes.empty()) {
    report.update(JsonOf(plans.front()));
  } else {
    const KernelCount kernels = CountKernels(package);
    report["kernels"] = {{"used", kernels.used}, {"stored", kernels.stored}};
    for (const Built& plan : plans) report["plans"].push_back(JsonOf(plan));
  }
  out << report.dump(2) << "\n";
}

// "12 tasks, 3 with the best record, ...".
void PrintBuilt(std::ostream& out, const Built& built) {
  const BuiltLatency& latency = built.latency;
  const Partition& partition = built.assembly.partition;
  std::set<int> defaults;
  for (size_t i = 0; i < built.kernels.size(); ++i) {
    if (built.kernels[i].record < 0) defaults.insert(partition.programs[i].task);
  }
  const size_t tasks = partition.tasks.size();
  out << Count(tasks, "task") << ", " << tasks - defaults.size()
      << " with the best record, " << defaults.size() << " with the default schedule";
  if (defaults.empty()) out << "; estimated latency " << Duration(latency.expected);
  if (latency.measured > 0) out << ", measured here " << Duration(latency.measured);
}
// What was chosen and found out beside it.
void PrintMore(std::ostream& out, const Built& built) {
  for (const auto& [boundary, way] : built.assembly.other)
    out << "cut at " << boundary << ": " << way << ", which the history says is faster than the usual way\n";
  if (built.check.has_value()) out << Summary(*built.check) << "\n";
}

std::string LibrariesText(const Package& package) {
  std::string text;
  for (Library library : package.manifest().libraries) absl::StrAppend(&text, "; needs ", TitleOf(library), " where it runs");
  return text;
}

void PrintPlans(std::ostream& out, const BuildFlags& flags, const std::vector<Built>& plans, const Package& package) {
  const KernelCount kernels = CountKernels(package);
  out << "built " << flags.out << ": " << Count(plans.size(), "plan") << ", " << Count(kernels.stored, "kernel") << " for "
      << Count(kernels.used, "task") << LibrariesText(package) << "\n";
  for (const Built& plan : plans) {
    out << "plan " << SizesText(plan.symbols.sizes) << ": ";
    PrintBuilt(out, plan);
    out << "\n";
    PrintMore(out, plan);
  }
  // Said once of each symbol: most often it is the same for all plans.
  std::map<std::string, std::string> refused;
  for (const Built& plan : plans)
    for (const auto& [symbol, padding] : plan.symbols.padding)
      if (!padding.why_not.empty()) refused.emplace(symbol, padding.why_not);
  for (const auto& [symbol, why] : refused)
    out << "inputs between the sizes of " << symbol << " are refused, since padding is not known to be harmless: " << why << "\n";
}

void PrintText(std::ostream& out, const BuildFlags& flags, const std::vector<Built>& plans, const Package& package) {
  if (!plans.front().symbols.sizes.empty()) return PrintPlans(out, flags, plans, package);
  out << "built " << flags.out << ": ";
  PrintBuilt(out, plans.front());
  out << LibrariesText(package) << "\n";
  PrintMore(out, plans.front());
}

// What the plans of a package are built with.
class Builder {
 public:
  Builder(const BuildFlags& flags, const ResolvedTarget& resolved, Session& session)
      : flags_(flags),
        resolved_(resolved),
        session_(session),
        device_(OpenDevice(resolved.target)),
        // Records of another device are better than none where there is no such device; where there is one, its own count.
        shelf_(flags, resolved, !device_.ok(), session),
        compiler_(resolved, flags.build_timeout) {}

  // Chooses records, compiles, and checks the network where the device is here. The plan outlives the result.
  absl::StatusOr<Built> Build(const ImportedPlan& plan) {
    const Network& network = plan.model.network;
    const Cuts& cuts = plan.model.cuts;
    Built built;
    built.symbols = SymbolsOf(plan, flags_.mask);
    built.network = {LatencyKey(NetworkName(flags_.model.model), cuts.partition), resolved_.target.ToString(), resolved_.facts.model};
    // What is built for another processor of this kind does not run here.
    const bool runs_here = device_.ok() && resolved_.target.mcpu == Target().mcpu;
    if (runs_here && !flags_.no_check) {
      LocalJudge judge(network, resolved_, **device_, compiler_);
      ASSIGN_OR_RETURN(built.check, CheckNetwork(network, cuts, shelf_, judge));
      for (const auto& wrong : built.check->wrong) Warn(session_, wrong.Sentence());
    }
    std::vector<std::string> keys;
    for (const Task& task : cuts.partition.tasks) keys.push_back(task.workload_key);
    ASSIGN_OR_RETURN(const RecordsByWorkload records, shelf_.Best(keys));
    if (built.check.has_value()) {
      built.assembly = built.check->assembly;
    } else {
      ASSIGN_OR_RETURN(built.assembly, Assemble(network, cuts, records));
    }
    ASSIGN_OR_RETURN(built.kernels, compiler_.Compile(built.assembly, std::vector<bool>(built.assembly.records.size(), true)));
    WarnOfDefaults(built.assembly, records, compiler_, resolved_.target, told_, session_);
    if (built.check.has_value() && !built.check->right) {
      const std::string sizes = built.symbols.sizes.empty() ? "" : absl::StrCat("with ", SizesText(built.symbols.sizes), ", ");
      return absl::DataLossError(absl::StrCat(sizes, built.check->text, "; no package was made, --no-check makes one all the same"));
    }
    return built;
  }

 private:
  const BuildFlags& flags_;
  const ResolvedTarget& resolved_;
  Session& session_;
  absl::StatusOr<std::unique_ptr<Device>> device_;
  BuildShelf shelf_;
  AssemblyCompiler compiler_;
  std::set<std::string> told_;
};

// What a plan of the package should take, and takes: measured where all tasks have records and the device is here, and kept in the history.
absl::StatusOr<BuiltLatency> LatencyOf(const BuildFlags& flags, const Package& package, NetworkLatency network, Session& session) {
  BuiltLatency latency;
  latency.tasks = package.manifest().estimated_seconds();
  latency.expected = package.manifest().latency_seconds;
  if (flags.no_measure || flags.history.empty() || latency.expected <= 0) return latency;
  ASSIGN_OR_RETURN(const std::optional<double> measured, MeasurePackage(package, network.device_model));
  if (!measured.has_value()) return latency;
  latency.measured = *measured;
  network.measured = *measured;
  network.tasks = latency.tasks;
  const absl::Status kept = KeepLatency(flags.history, network);
  if (!kept.ok()) Warn(session, absl::StrCat("later estimates do not learn from the measured latency: ", std::string(kept.message())));
  return latency;
}

absl::Status RunBuild(const BuildFlags& flags, Session& session) {
  if (!flags.history.empty() && !flags.service.empty()) {
    return absl::InvalidArgumentError("a build reads one history; give either --history or --service");
  }
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveTarget(flags.target));
  ASSIGN_OR_RETURN(const std::vector<ImportedPlan> loaded, LoadPlans(flags.model, flags.import, /*with_network=*/true, flags.mask));
  for (const std::string& warning : WarningsOf(loaded)) Warn(session, warning);
  const bool from_file = !flags.history.empty() && std::filesystem::exists(flags.history);
  if (!flags.history.empty() && !from_file) {
    Warn(session, absl::StrCat("there is no history ", flags.history, "; make one with `diapason tune`"));
  }
  Builder builder(flags, resolved, session);
  std::vector<Built> plans;
  for (const ImportedPlan& plan : loaded) {
    ASSIGN_OR_RETURN(Built built, builder.Build(plan));
    plans.push_back(std::move(built));
  }
  std::vector<PackageRequest> requests;
  for (size_t i = 0; i < plans.size(); ++i) {
    requests.push_back({loaded[i].model.network, plans[i].assembly.partition, resolved.target, resolved.facts, plans[i].kernels, std::nullopt, plans[i].symbols});
    if (from_file) {
      ASSIGN_OR_RETURN(requests.back().correction, CorrectionFor(flags.history, plans[i].network));
    }
  }
  RETURN_IF_ERROR(BuildPackage(flags.out, requests));
  ASSIGN_OR_RETURN(const Package package, Package::Open(flags.out));
  for (size_t i = 0; i < plans.size(); ++i) {
    ASSIGN_OR_RETURN(plans[i].latency,
                     LatencyOf(flags, package.WithPlan(static_cast<int>(i)), plans[i].network, session));
  }
  flags.json ? PrintJson(session.out, flags, resolved, plans, package) : PrintText(session.out, flags, plans, package);
  return absl::OkStatus();
}

}  // namespace

void AddBuild(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("build", "Make a runnable package with the best schedules of a history");
  command->footer(
      "A task without a verified record gets the default schedule and a warning. Where a network can be cut in several ways (a "
      "residual addition with either branch or apart, a concatenation in place or apart), the one whose records take least time "
      "together is built. Where the device is present, the network is run on it and compared with "
      "the naive evaluation, on several inputs and many times; records that make it wrong are found, marked in the history and replaced, and "
      "a package that is wrong all the same is not made. With --dim, the package has a plan for each combination of sizes; plans share weights and "
      "kernels. No device is needed: cuda packages can be built, unchecked, where there is no GPU.");
  auto flags = std::make_shared<BuildFlags>();
  AddModelFlags(command, &flags->model);
  AddImportFlags(command, &flags->import);
  AddTargetFlag(command, &flags->target);
  AddMaskFlag(command, &flags->mask);
  command->add_option("--history", flags->history, "History with the records (default: none)")->type_name("FILE");
  command->add_option("--service", flags->service, "Ask this service for the records")->type_name("HOST:PORT");
  AddSecurityFlags(command, &flags->security);
  command->add_option("--out", flags->out, "Folder to make; a package there is replaced")->required()->type_name("DIR");
  AddNumber(command, "--build-timeout", &flags->build_timeout, 0, "Seconds to compile a task (default 120)");
  command->add_flag("--no-measure", flags->no_measure,
                    "Do not time the package where this machine has its device and the history all of its tasks; the history keeps "
                    "that time, by which later estimates of the network are corrected");
  command->add_flag("--no-check", flags->no_check, "Do not run the network to compare it with the naive evaluation");
  command->add_flag("--json", flags->json, "One JSON document instead of text");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunBuild(*flags, session); }; });
}

}  // namespace diapason
