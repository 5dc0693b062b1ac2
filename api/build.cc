#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/build_latency.h"
#include "api/check.h"
#include "api/import.h"
#include "api/record_sources.h"
#include "base/check.h"
#include "compiler/build/build_package.h"
#include "compiler/build/package.h"
#include "compiler/runtime/device.h"
#include "db/history.h"
#include "db/history_name.h"
#include "diapason/compiler.h"
#include "diapason/devices.h"
#include "scheduler/objective.h"
#include "service/loaded_versions.h"
#include "service/local_judge.h"
#include "service/network_check.h"
#include "service/refine_assembly.h"
#include "service/target.h"
#include "service/tune_spec.h"

namespace diapason::api {
namespace {

std::string WorkloadText(const ::diapason::Task& task, const Target& target) {
  return absl::StrCat("workload ", task.workload_key, " (", task.name, ") on target ", target.ToString());
}

void Tell(const BuildOptions& options, const std::string& step) {
  if (options.progress) options.progress(step);
}

std::string TasksText(const FusionChoices& fusion) {
  const size_t count = fusion.partition.tasks.size();
  return absl::StrCat(count, count == 1 ? " task" : " tasks");
}

// What is found of records goes to their source; where they cannot be marked there, it is remembered for this build.
class BuildShelf : public RecordShelf {
 public:
  BuildShelf(RecordSources& sources, const ResolvedTarget& target, bool may_differ, const Hooks& hooks)
      : sources_(sources), target_(target), may_differ_(may_differ), hooks_(hooks) {}

  absl::StatusOr<RecordsByWorkload> Best(const std::vector<std::string>& workload_keys) override {
    return sources_.Read(workload_keys, target_, may_differ_, refuted_);
  }

  absl::StatusOr<ContendersByWorkload> Contenders(const RecordsByWorkload& best) {
    return sources_.Contenders(best, target_, may_differ_, refuted_);
  }

  absl::Status SetVerified(const TuningRecord&, const NetworkJudge::Verdict&) override { return absl::OkStatus(); }

  absl::Status MarkWrongInNetwork(const TuningRecord& record, double max_error, const std::string& evidence) override {
    refuted_.insert(record.uuid);
    if (const std::string why = sources_.SourceOf(record).Mark(record, max_error, evidence); !why.empty())
      Warn(hooks_, why);
    return absl::OkStatus();
  }

 private:
  RecordSources& sources_;
  const ResolvedTarget& target_;
  const bool may_differ_;
  const Hooks& hooks_;
  std::set<std::string> refuted_;  // uuids
};

// A plan that was built.
struct Built {
  Assembly assembly;
  std::vector<TaskKernels> kernels;         // by program of the partition
  std::optional<NetworkCheckReport> check;  // nothing: it was not asked for, or there is no device here
  Refinement refinement;
  PlanSymbols symbols;
  NetworkLatency network;  // by which the history knows the plan
};

// Whether records are compared in the network by default: where kernels overlap, unless other times than those in a
// network are asked for.
bool RefinesByDefault(const Target& target) {
  return target.kind == TargetKind::kCuda && target.caches == Caches::kNetwork;
}

// What the plans of a package are built with.
class Builder {
 public:
  Builder(const BuildOptions& options, const ResolvedTarget& resolved, RecordSources& sources, size_t plans)
      : options_(options),
        resolved_(resolved),
        refine_seconds_(options.refine_seconds.value_or(
            RefinesByDefault(resolved.target) ? kRefineSeconds / static_cast<double>(plans) : 0)),
        device_(OpenDevice(resolved.target)),
        sources_(sources),
        // Records of another device are better than none where there is no such device; where there is one, its own
        // count.
        shelf_(sources, resolved, !device_.ok(), options.hooks),
        runs_here_(CheckTargetRunsHere(resolved.target)),
        compiler_(resolved, options.build_timeout_seconds) {}

  // Whether the package can be checked and timed here: the device is there, and its processor has what the code needs.
  bool runs_here() const { return device_.ok() && runs_here_.ok(); }
  // FailedPrecondition: what keeps this processor from running the package. Other errors are those of the compiler.
  const absl::Status& processor() const { return runs_here_; }

  // How much of the arithmetic of the plans' tasks has records: between 0 and 1.
  absl::StatusOr<double> ShareWithRecords(const std::vector<ImportedPlan>& plans) {
    double with = 0, all = 0;
    for (const ImportedPlan& plan : plans) {
      ASSIGN_OR_RETURN(const RecordsByWorkload records, BestRecords(plan.model.fusion));
      for (const ::diapason::Task& task : plan.model.fusion.partition.tasks) {
        const double flops = task.weight * task.dag.flops();
        all += flops;
        if (UsableRecord(records, task) != nullptr) with += flops;
      }
    }
    return all > 0 ? with / all : 1;
  }

  // Chooses records, compiles, and checks the network where the device is here. The plan outlives the result. `which`
  // of several it is: " of plan 1 of 2".
  absl::StatusOr<Built> Build(const ImportedPlan& plan, const std::string& which) {
    const Network& network = plan.model.network;
    const FusionChoices& fusion = plan.model.fusion;
    Built built;
    built.symbols = SymbolsOf(plan, options_.model.mask);
    built.network = {LatencyKey(NetworkName(options_.model.source), fusion.partition), resolved_.target.ToString(),
                     resolved_.facts.model};
    if (runs_here() && options_.check) {
      Tell(options_, absl::StrCat("compiling and checking ", TasksText(fusion), which));
      LocalJudge judge(network, resolved_, **device_, compiler_);
      ASSIGN_OR_RETURN(built.check, CheckNetwork(network, fusion, shelf_, judge));
      for (const auto& wrong : built.check->wrong) Warn(options_.hooks, wrong.Sentence());
      if (built.check->right) RETURN_IF_ERROR(Refine(plan, judge, which, built));
    }
    RETURN_IF_ERROR(CheckStop(options_.hooks, "the package was built"));
    ASSIGN_OR_RETURN(const RecordsByWorkload records, BestRecords(fusion));
    if (built.check.has_value()) {
      built.assembly = built.check->assembly;
    } else {
      Tell(options_, absl::StrCat("compiling ", TasksText(fusion), which));
      ASSIGN_OR_RETURN(built.assembly, Assemble(network, fusion, records));
    }
    ASSIGN_OR_RETURN(built.kernels,
                     compiler_.Compile(built.assembly, std::vector<bool>(built.assembly.records.size(), true)));
    NoteSources(built);
    NoteDefaults(built.assembly, records);
    if (built.check.has_value() && !built.check->right) {
      TellDefaults();
      const std::string sizes =
          built.symbols.sizes.empty() ? "" : absl::StrCat("with ", SizesText(built.symbols.sizes), ", ");
      return absl::DataLossError(
          absl::StrCat(sizes, built.check->text, "; no package was made, --no-check makes one all the same"));
    }
    return built;
  }

  // Warns of the tasks of all plans that got the fallback schedule for want of a record: of each, or how many these
  // are.
  void TellDefaults() {
    if (defaults_.size() > 1 && !options_.list_fallbacks) {
      defaults_ = {absl::StrCat(defaults_.size(), " of ", told_.size(), " tasks have no verified record on target ",
                                resolved_.target.ToString(),
                                "; their fallback schedules are used, which may be slow (--verbose lists them)")};
    }
    for (const std::string& sentence : defaults_) Warn(options_.hooks, sentence);
    defaults_.clear();
    for (const auto& [device, workloads] : foreign_)
      Warn(options_.hooks, absl::StrCat("the records of ", workloads.size(), workloads.size() == 1 ? " task" : " tasks",
                                        " were measured on another device (", device,
                                        "), so the estimated latency may be off; tune on this one to replace them"));
    foreign_.clear();
  }

 private:
  // Of all tasks, those of fusion alternatives included.
  absl::StatusOr<RecordsByWorkload> BestRecords(const FusionChoices& fusion) {
    return shelf_.Best(KeysOfRecords(fusion.partition.tasks));
  }

  // Chooses among fusion alternatives, and among records that are nearly as fast, by the latency of the network, which
  // is checked again with them.
  absl::Status Refine(const ImportedPlan& plan, LocalJudge& judge, const std::string& which, Built& built) {
    if (!options_.measure || refine_seconds_ <= 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const RecordsByWorkload records, BestRecords(plan.model.fusion));
    RecordsByWorkload best = records;
    for (const std::optional<TuningRecord>& record : built.check->assembly.records)
      if (record.has_value()) best.insert_or_assign(record->workload_key, *record);
    std::erase_if(best, [&](const auto& one) { return compiler_.unusable().contains(one.second.uuid); });
    ASSIGN_OR_RETURN(const ContendersByWorkload contenders, shelf_.Contenders(best));
    const Replacements replacements{plan.model.network, plan.model.fusion, records, contenders};
    Assembly assembly = built.check->assembly;
    if (!HasReplacements(assembly, replacements)) return absl::OkStatus();
    Tell(options_, absl::StrCat("comparing records in the network", which));
    const RefineOptions limits{refine_seconds_, options_.hooks.stop};
    absl::StatusOr<Refinement> refined = [&] {
      LoadedVersions versions(plan.model.network, resolved_, **device_, compiler_);  // gone before the check loads more
      return RefineAssembly(assembly, replacements, versions, limits);
    }();
    if (absl::IsCancelled(refined.status())) return refined.status();
    if (!refined.ok()) {  // the network is right as it is
      Warn(options_.hooks, absl::StrCat("records could not be compared in the network (", refined.status().message(),
                                        "); those that are fastest alone are used"));
      return absl::OkStatus();
    }
    Refinement refinement = *std::move(refined);
    built.refinement.compared = refinement.compared;
    built.refinement.ended_early = refinement.ended_early;
    if (refinement.replaced.empty() && refinement.regrouped == 0) return absl::OkStatus();
    RETURN_IF_ERROR(judge.Use(assembly));
    ASSIGN_OR_RETURN(const NetworkJudge::Verdict verdict,
                     judge.Judge(std::vector<bool>(assembly.records.size(), true)));
    if (!verdict.ok) {
      Warn(options_.hooks,
           absl::StrCat("the records and fusion alternatives that make the network fastest make it wrong (",
                        verdict.text, "); those that are fastest alone are used, report a bug"));
      return absl::OkStatus();
    }
    built.check->assembly = std::move(assembly);
    built.check->max_rel_error = verdict.max_rel_error;
    built.refinement = std::move(refinement);
    return absl::OkStatus();
  }

  // Why tasks get the fallback schedule, each once.
  void NoteDefaults(const Assembly& assembly, const RecordsByWorkload& records) {
    for (size_t i = 0; i < assembly.records.size(); ++i) {
      const ::diapason::Task& task = assembly.partition.tasks[i];
      if (!told_.insert(task.workload_key).second) continue;
      const std::string workload = WorkloadText(task, resolved_.target);
      const std::optional<TuningRecord>& record = assembly.records[i];
      if (record.has_value()) {
        const auto why = compiler_.unusable().find(record->uuid);
        if (why == compiler_.unusable().end()) continue;
        Warn(options_.hooks, absl::StrCat("record ", record->id, " of ", workload, " cannot be built here (",
                                          why->second, "); the fallback schedule is used"));
      } else if (records.contains(task.workload_key)) {
        defaults_.push_back(
            absl::StrCat("the records of ", workload,
                         " were not verified yet; the fallback schedule is used, tune again to have them verified"));
      } else {
        defaults_.push_back(
            absl::StrCat("there is no record of ", workload, "; the fallback schedule is used, which may be slow"));
      }
    }
  }

  // Where the records of the kernels come from, and which of those in files were measured on another model.
  void NoteSources(Built& built) {
    for (size_t i = 0; i < built.kernels.size(); ++i) {
      TaskKernels& kernels = built.kernels[i];
      if (kernels.record < 0) continue;
      const TuningRecord& record = *built.assembly.records[built.assembly.partition.programs[i].task];
      kernels.record_source = sources_.SourceOf(record).kind();
      if (!HasRecordIds(kernels.record_source) && record.device_model != resolved_.facts.model)
        foreign_[record.device_model].insert(record.workload_key);
    }
  }

  const BuildOptions& options_;
  const ResolvedTarget& resolved_;
  const double refine_seconds_;  // of each plan
  absl::StatusOr<std::unique_ptr<Device>> device_;
  RecordSources& sources_;
  BuildShelf shelf_;
  const absl::Status runs_here_;
  AssemblyCompiler compiler_;
  std::set<std::string> told_;                            // workloads so far
  std::vector<std::string> defaults_;                     // warnings not given yet
  std::map<std::string, std::set<std::string>> foreign_;  // workloads by the device of their records
};

std::optional<double> Microseconds(double seconds) {
  return seconds > 0 ? std::optional<double>(seconds * 1e6) : std::nullopt;
}

// What a plan of the package takes, measured where all its tasks have records, and kept in the history, if there is
// one.
absl::Status MeasureLatency(const BuildOptions& options, const std::string& history, const Package& package,
                            NetworkLatency network, BuiltPlan& plan) {
  if (package.manifest().latency_seconds <= 0) return absl::OkStatus();
  RETURN_IF_ERROR(CheckStop(options.hooks, "the package was timed; it is whole"));
  Tell(options, "timing the package");
  ASSIGN_OR_RETURN(const std::optional<double> measured, MeasurePackage(package, network.device_model));
  if (!measured.has_value()) return absl::OkStatus();
  plan.latency_us = Microseconds(*measured);
  network.measured = *measured;
  network.tasks = package.manifest().estimated_seconds();
  if (history.empty()) return absl::OkStatus();
  const absl::Status kept = KeepLatency(history, network);
  if (!kept.ok())
    Warn(options.hooks,
         absl::StrCat("later estimates do not learn from the measured latency: ", std::string(kept.message())));
  return absl::OkStatus();
}

BuiltPlan Describe(const Built& built) {
  const Partition& partition = built.assembly.partition;
  BuiltPlan plan;
  plan.sizes = built.symbols.sizes;
  std::set<int> defaults, shipped;
  for (size_t i = 0; i < built.kernels.size(); ++i) {
    const TaskKernels& kernels = built.kernels[i];
    const PlacedTask& placed = partition.programs[i];
    BuiltTask task;
    task.id = placed.task + 1;
    task.name = partition.tasks[placed.task].name;
    task.count = placed.weight;
    task.workload = partition.tasks[placed.task].workload_key;
    task.record_source = kernels.record_source;
    if (HasRecordIds(kernels.record_source)) task.record = kernels.record;
    task.record_uuid = kernels.record_uuid;
    if (kernels.record_source == "shipped") shipped.insert(placed.task);
    if (kernels.record < 0) defaults.insert(placed.task);
    task.schedule = kernels.schedule;
    if (!placed.place.whole()) task.writes = placed.place.ToString();
    task.estimated_us = Microseconds(kernels.estimated_seconds);
    plan.tasks.push_back(std::move(task));
  }
  plan.task_count = static_cast<int>(partition.tasks.size());
  plan.fallback_count = static_cast<int>(defaults.size());
  plan.shipped_count = static_cast<int>(shipped.size());
  for (const auto& [point, alternative] : built.assembly.other) plan.fusion_choices.push_back({point, alternative});
  plan.refined = {built.refinement.compared, static_cast<int>(built.refinement.replaced.size()), built.refinement.ratio,
                  built.refinement.regrouped, built.refinement.ended_early};
  if (built.check.has_value()) plan.check = CheckOf(*built.check, built.symbols.sizes);
  plan.padding = PaddingOf(built.symbols.padding);
  return plan;
}

void CountKernels(const Package& package, BuildReport& report) {
  std::set<std::string> files;
  for (const PackageManifest& plan : package.plans())
    for (const PackageTask& task : plan.tasks) {
      ++report.kernels_used;
      files.insert(task.file);
    }
  report.kernels_stored = static_cast<int64_t>(files.size());
}

// What was built, timed where it `runs_here` and that is wanted.
absl::StatusOr<BuildReport> ReportOn(const BuildOptions& options, const std::string& target,
                                     const std::vector<Built>& plans, bool runs_here, const std::string& latencies) {
  ASSIGN_OR_RETURN(const Package package, Package::Open(options.out));
  BuildReport report;
  report.out = options.out;
  report.target = target;
  for (Library library : package.manifest().libraries) report.libraries.push_back({NameOf(library), TitleOf(library)});
  CountKernels(package, report);
  for (size_t i = 0; i < plans.size(); ++i) {
    BuiltPlan& plan = report.plans.emplace_back(Describe(plans[i]));
    const Package own = package.WithPlan(static_cast<int>(i));
    plan.tasks_us = Microseconds(own.manifest().estimated_seconds());
    plan.estimated_us = Microseconds(own.manifest().latency_seconds);
    if (runs_here && options.measure) RETURN_IF_ERROR(MeasureLatency(options, latencies, own, plans[i].network, plan));
  }
  return report;
}

// The first of the histories that is there; empty: none is.
std::string HistoryOfLatencies(const BuildOptions& options) {
  for (const std::string& history : options.histories)
    if (IsHistory(history) && MayBeThere(history)) return history;
  return "";
}

bool DefersNorms(const std::vector<ImportedPlan>& plans) {
  return std::any_of(plans.begin(), plans.end(), [](const ImportedPlan& plan) {
    const std::vector<Node>& nodes = plan.model.network.nodes;
    return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.op == "run_sums"; });
  });
}

// Replaces plans whose normalizations are behind products, where the target leaves that open, by those with
// normalizations apart if as much of these was tuned: without records, their fallback schedules are the faster ones.
absl::Status TakeTunedForm(const BuildOptions& options, const ResolvedTarget& target, Builder& builder,
                           std::vector<ImportedPlan>& plans) {
  if (target.norms != Norms::kEither || !DefersNorms(plans)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const double share, builder.ShareWithRecords(plans));
  if (share == 1) return absl::OkStatus();
  Hooks quiet = options.hooks;  // which has warned of the model before
  quiet.warn = nullptr;
  ResolvedTarget apart = target;
  apart.norms = Norms::kApart;
  plans.clear();  // the memory of one network at a time
  ASSIGN_OR_RETURN(plans, LoadPlans(options.model, apart, /*with_network=*/true, quiet));
  ASSIGN_OR_RETURN(const double share_apart, builder.ShareWithRecords(plans));
  if (share_apart >= share) return absl::OkStatus();
  plans.clear();
  ASSIGN_OR_RETURN(plans, LoadPlans(options.model, target, /*with_network=*/true, quiet));
  return absl::OkStatus();
}

// With records of these sources in their order, and those that come with the program last.
absl::StatusOr<BuildReport> BuildFrom(const BuildOptions& given, std::vector<std::unique_ptr<RecordSource>> from) {
  BuildOptions options = given;
  RETURN_IF_ERROR(MoveTypeToTarget(options.model, options.target));
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveTarget(options.target));
  Tell(options, "reading the model");
  ASSIGN_OR_RETURN(std::vector<ImportedPlan> loaded,
                   LoadPlans(options.model, resolved, /*with_network=*/true, options.hooks));
  if (options.shipped_records) from.push_back(ShippedSource());
  RecordSources sources(std::move(from));
  const std::string latencies = HistoryOfLatencies(options);
  Builder builder(options, resolved, sources, loaded.size());
  if (absl::IsFailedPrecondition(builder.processor()))
    Warn(options.hooks,
         absl::StrCat("the package can be neither verified nor timed here: ", builder.processor().message()));
  else
    RETURN_IF_ERROR(builder.processor());
  RETURN_IF_ERROR(TakeTunedForm(options, resolved, builder, loaded));
  std::vector<Built> plans;
  for (const ImportedPlan& plan : loaded) {
    const std::string which =
        loaded.size() == 1 ? "" : absl::StrCat(" of plan ", plans.size() + 1, " of ", loaded.size());
    ASSIGN_OR_RETURN(Built built, builder.Build(plan, which));
    plans.push_back(std::move(built));
    if (plans.size() == loaded.size()) builder.TellDefaults();
    RETURN_IF_ERROR(CheckStop(options.hooks, "the package was built"));
  }
  std::vector<PackageRequest> requests;
  for (size_t i = 0; i < plans.size(); ++i) {
    requests.push_back({loaded[i].model.network, plans[i].assembly.partition, resolved.target.ForKernels(),
                        resolved.facts, plans[i].kernels, std::nullopt, plans[i].symbols});
    const double refined = plans[i].refinement.seconds, tasks = SecondsOfTasks(plans[i].assembly);
    if (refined > 0 && tasks > 0) {
      requests.back().correction = Correction(refined, tasks);
    } else if (!latencies.empty()) {
      ASSIGN_OR_RETURN(requests.back().correction, CorrectionFor(latencies, plans[i].network));
    }
  }
  Tell(options, "writing the package");
  RETURN_IF_ERROR(BuildPackage(options.out, requests));
  return ReportOn(options, resolved.target.ToString(), plans, builder.runs_here(), latencies);
}

}  // namespace

absl::StatusOr<BuildReport> Build(const BuildOptions& options) {
  if (!(options.build_timeout_seconds > 0))
    return absl::InvalidArgumentError(
        absl::StrCat("the build timeout is ", options.build_timeout_seconds, "; give seconds above 0"));
  if (options.refine_seconds.has_value() && !(*options.refine_seconds >= 0))
    return absl::InvalidArgumentError(
        absl::StrCat("the time to refine is ", *options.refine_seconds, "; give 0 for none, or seconds"));
  std::vector<std::unique_ptr<RecordSource>> sources;
  for (const std::string& history : options.histories) {
    ASSIGN_OR_RETURN(sources.emplace_back(), OpenRecordSource(history));
    if (!IsHistory(history) || MayBeThere(history)) continue;
    const std::string absent = absl::StrCat("there is no history ", history, "; make one with `diapason tune`");
    if (options.histories.size() == 1)
      return absl::NotFoundError(absl::StrCat(absent, ", or leave it out to build without records of your own"));
    Warn(options.hooks, absent);
  }
  if (!options.service.address.empty()) sources.push_back(ServiceSource(options.service));
  return BuildFrom(options, std::move(sources));
}

}  // namespace diapason::api
