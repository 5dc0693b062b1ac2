// diapason profile: where the time of a package goes, kernel by kernel.
#include <CLI/CLI.hpp>
#include <cmath>
#include <fstream>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"
#include "compiler/build/open_package.h"
#include "compiler/build/plans.h"
#include "compiler/build/profile_package.h"
#include "compiler/build/random_inputs.h"

namespace diapason {
namespace {

struct ProfileFlags {
  std::string package, trace;
  std::vector<std::string> dims;
  double duration = 2, warm_up_ms = 200, peak_gflops = 0, peak_gbs = 0;  // 0: not given
  bool json = false;
};

struct PlanProfile {
  PackageManifest manifest;  // of the plan
  PackageProfile profile;
};

// What the time between kernels is.
const char* BetweenName(const PackageProfile& profile) {
  if (profile.between_seconds() >= 0) return "between kernels";
  return profile.paths > 1 || profile.early_starts ? "saved by overlap" : "saved without timers";
}

std::optional<double> Rate(const ProfiledKernel& kernel, double KernelWork::*amount) {
  if (!kernel.work.has_value() || kernel.seconds <= 0) return std::nullopt;
  return *kernel.work.*amount / kernel.seconds * 1e-9;
}

std::optional<double> RooflineShare(const ProfiledKernel& kernel) {
  if (!kernel.roofline.has_value() || kernel.seconds <= 0) return std::nullopt;
  return kernel.roofline->seconds / kernel.seconds;
}

Json JsonOf(const ProfiledKernel& kernel, const PlanProfile& plan) {
  const auto number = [](const auto& value) { return value.has_value() ? Json(*value) : Json(nullptr); };
  const PackageTask& task = plan.manifest.tasks[kernel.task];
  Json json{{"kernel", kernel.name},
            {"step", kernel.step},
            {"task", task.name},
            {"workload", task.workload},
            {"record", number(task.record_id())},
            {"record_source", task.record_source.empty() ? Json(nullptr) : Json(task.record_source)},
            {"schedule", task.schedule},
            {"time_us", kernel.seconds * 1e6},
            {"share", kernel.seconds / plan.profile.latency_seconds},
            {"flops", kernel.work.has_value() ? Json(kernel.work->flops) : Json(nullptr)},
            {"bytes", kernel.work.has_value() ? Json(kernel.work->bytes) : Json(nullptr)},
            {"gflops_per_s", number(Rate(kernel, &KernelWork::flops))},
            {"gb_per_s", number(Rate(kernel, &KernelWork::bytes))},
            {"roofline", nullptr}};
  if (kernel.roofline.has_value())
    json["roofline"] = {{"limit_us", kernel.roofline->seconds * 1e6},
                        {"bound", kernel.roofline->compute ? "compute" : "memory"},
                        {"fraction", number(RooflineShare(kernel))}};
  return json;
}

Json JsonOf(const PlanProfile& plan) {
  const PackageProfile& profile = plan.profile;
  Json kernels = Json::array();
  for (const ProfiledKernel& kernel : profile.kernels) kernels.push_back(JsonOf(kernel, plan));
  Json json;
  json["sizes"] = Json::object();
  for (const auto& [symbol, size] : plan.manifest.sizes) json["sizes"][symbol] = size;
  json["latency_us"] = profile.latency_seconds * 1e6;
  json["kernels_us"] = profile.kernels_seconds() * 1e6;
  json["disturbed_us"] = profile.disturbed_seconds() * 1e6;
  json["between_us"] = profile.between_seconds() * 1e6;
  json["runs"] = profile.runs;
  json["paths"] = profile.paths;
  json["kernels"] = kernels;
  return json;
}

Json JsonOf(const ProfileFlags& flags, const DeviceFacts& facts, const std::vector<PlanProfile>& plans) {
  const auto giga = [](const std::optional<double>& value) { return value ? Json(*value * 1e-9) : Json(nullptr); };
  Json list = Json::array();
  for (const PlanProfile& plan : plans) list.push_back(JsonOf(plan));
  const PackageManifest& manifest = plans.front().manifest;
  return {{"package", flags.package},
          {"network", manifest.network},
          {"target", manifest.target.ToString()},
          {"device", facts.model},
          {"peak_gflops_per_s", giga(plans.front().profile.flops)},
          {"peak_gb_per_s", giga(plans.front().profile.bandwidth)},
          {"plans", list}};
}

// Trace Event Format, complete events: kernels in order, each as long as its median; one process for each plan.
Json TraceOf(const std::vector<PlanProfile>& plans) {
  Json events = Json::array();
  for (size_t p = 0; p < plans.size(); ++p) {
    const PlanProfile& plan = plans[p];
    const int pid = static_cast<int>(p) + 1;
    const std::string name = plan.manifest.sizes.empty()
                                 ? plan.manifest.network
                                 : absl::StrCat(plan.manifest.network, ", ", SizesText(plan.manifest.sizes));
    events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"tid", 1}, {"args", {{"name", name}}}});
    events.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", pid}, {"tid", 1}, {"args", {{"name", "kernels in order"}}}});
    double at = 0;
    const auto add = [&](const std::string& event, const char* category, double seconds, Json args) {
      events.push_back({{"name", event},
                        {"cat", category},
                        {"ph", "X"},
                        {"pid", pid},
                        {"tid", 1},
                        {"ts", at},
                        {"dur", seconds * 1e6},
                        {"args", std::move(args)}});
      at += seconds * 1e6;
    };
    for (const ProfiledKernel& kernel : plan.profile.kernels)
      add(kernel.name, "kernel", kernel.seconds, JsonOf(kernel, plan));
    if (const double rest = plan.profile.disturbed_seconds(); rest > 0)
      add("disturbed kernels", "rest", rest, Json::object());
    if (const double rest = plan.profile.between_seconds(); rest > 0)
      add(BetweenName(plan.profile), "rest", rest, Json::object());
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ns"}};
}

absl::Status WriteTrace(const std::string& path, const std::vector<PlanProfile>& plans) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << JsonText(TraceOf(plans), {.indent = 1}) << "\n";
  if (file.flush()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("the trace cannot be written to ", path, "; give --trace a file in a folder where you may write"));
}

std::string ShareText(double share) { return absl::StrFormat("%.1f%%", share * 100); }

void PrintPlan(std::ostream& out, const PlanProfile& plan) {
  const PackageProfile& profile = plan.profile;
  if (!plan.manifest.sizes.empty()) out << "plan " << SizesText(plan.manifest.sizes) << "\n";
  TextTable table({{"#", true},
                   {"us", true},
                   {"share", true},
                   {"GFLOP/s", true},
                   {"GB/s", true},
                   {"roofline", true},
                   {"bound"},
                   {"record", true},
                   {"kernel"},
                   {"task"}});
  for (size_t i = 0; i < profile.kernels.size(); ++i) {
    const ProfiledKernel& kernel = profile.kernels[i];
    const PackageTask& task = plan.manifest.tasks[kernel.task];
    const std::optional<double> reached = RooflineShare(kernel);
    table.AddRow({absl::StrCat(i + 1), Digits(kernel.seconds * 1e6),
                  ShareText(kernel.seconds / profile.latency_seconds),
                  Digits(Rate(kernel, &KernelWork::flops).value_or(0)),
                  Digits(Rate(kernel, &KernelWork::bytes).value_or(0)), reached ? ShareText(*reached) : "-",
                  !kernel.roofline.has_value() ? "-"
                  : kernel.roofline->compute   ? "compute"
                                               : "memory",
                  RecordText(task.record_id(), task.record_source), kernel.name, task.name});
  }
  out << table.ToString();
  const auto part = [&](double seconds) {
    return absl::StrCat(Duration(std::abs(seconds)), " (", ShareText(seconds / profile.latency_seconds), ")");
  };
  out << Count(static_cast<int64_t>(profile.kernels.size()), "kernel") << " " << Duration(profile.kernels_seconds());
  constexpr double kWorthNaming = 0.0005;
  if (std::abs(profile.disturbed_seconds()) >= kWorthNaming * profile.latency_seconds)
    out << ", disturbed kernels " << part(profile.disturbed_seconds());
  out << ", " << BetweenName(profile) << " " << part(profile.between_seconds()) << ", latency "
      << Duration(profile.latency_seconds) << "; medians of " << Count(profile.runs, "run") << "\n";
  if (profile.paths > 1)
    out << "in a real run independent kernels run side by side, on " << profile.paths << " paths\n";
}

void PrintText(std::ostream& out, const DeviceFacts& facts, const std::vector<PlanProfile>& plans) {
  const PackageManifest& manifest = plans.front().manifest;
  const PackageProfile& first = plans.front().profile;
  out << manifest.network << " for " << manifest.target.ToString() << " on " << facts.model;
  if (first.flops.has_value() && first.bandwidth.has_value())
    out << ", peak " << Digits(*first.flops * 1e-9) << " GFLOP/s (float32) and " << Digits(*first.bandwidth * 1e-9)
        << " GB/s";
  out << "\n";
  for (const PlanProfile& plan : plans) PrintPlan(out, plan);
}

// Those that --dim names; else all.
absl::StatusOr<std::vector<int>> PlansToProfile(const ProfileFlags& flags, const Package& package) {
  std::vector<int> plans;
  if (flags.dims.empty()) {
    for (size_t p = 0; p < package.plans().size(); ++p) plans.push_back(static_cast<int>(p));
    return plans;
  }
  ASSIGN_OR_RETURN(const DimChoices asked, DimsOf(flags.dims));
  for (const DimCombination& combination : CombinationsOf(asked)) {
    ASSIGN_OR_RETURN(const PlanChoice choice, ChoosePlan(package, combination.sizes));
    plans.push_back(choice.plan);
  }
  return plans;
}

bool LacksWork(const std::vector<PlanProfile>& plans) {
  for (const PlanProfile& plan : plans)
    for (const ProfiledKernel& kernel : plan.profile.kernels)
      if (!kernel.work.has_value()) return true;
  return false;
}

absl::Status RunProfile(const ProfileFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(Package package, OpenPackage(flags.package));
  ASSIGN_OR_RETURN(const std::vector<int> chosen, PlansToProfile(flags, package));
  ASSIGN_OR_RETURN(const std::unique_ptr<PlanRunner> runners, PlanRunner::Load(std::move(package)));
  ProfileOptions options;
  options.seconds = flags.duration;
  options.warm_up_seconds = flags.warm_up_ms * 1e-3;
  if (flags.peak_gflops > 0) options.flops = flags.peak_gflops * 1e9;
  if (flags.peak_gbs > 0) options.bandwidth = flags.peak_gbs * 1e9;
  std::vector<PlanProfile> plans;
  DeviceFacts facts;
  for (int plan : chosen) {
    ASSIGN_OR_RETURN(PackageRunner* const runner, runners->Runner(plan));
    const PackageManifest& manifest = runner->manifest();
    RETURN_IF_ERROR(runner->SetInputs(RandomInputs(manifest, manifest.sizes, /*seed=*/0)));
    ASSIGN_OR_RETURN(PackageProfile profile, ProfilePackage(*runner, options));
    facts = runner->device().facts();
    plans.push_back({manifest, std::move(profile)});
  }
  if (LacksWork(plans))
    Warn(session, absl::StrCat("package '", flags.package,
                               "' does not say how many operations its kernels execute, so "
                               "that rates are not known; build it again"));
  if (!flags.trace.empty()) RETURN_IF_ERROR(WriteTrace(flags.trace, plans));
  if (flags.json)
    WriteDocument(session.out, {"profile", 2}, JsonOf(flags, facts, plans));
  else
    PrintText(session.out, facts, plans);
  return absl::OkStatus();
}

}  // namespace

void AddProfile(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("profile", "Show where the time of a package goes, kernel by kernel");
  command->footer(
      "Kernels run in the network's order, with random inputs, and each is timed where it stands, so that it finds the "
      "caches as in a real run. The latency is that of real runs, without "
      "timers. What it has more than the kernels' medians is shown by cause: kernels that were disturbed, other ones "
      "in "
      "each run, and time between kernels; what it has less was saved by overlap. GFLOP/s counts the operations that a "
      "kernel "
      "executes, GB/s each byte that it touches once; the roofline is how much of the speed that the device's peaks "
      "allow is reached. Above 100%: the data came from caches.");
  auto flags = std::make_shared<ProfileFlags>();
  command->add_option("PACKAGE", flags->package, "Package that `diapason build` made, a folder or a .dpk file")
      ->required()
      ->type_name("");
  AddDimFlag(command, &flags->dims, "Size of a symbolic dimension, as in seq=128 (default: all that the package has)");
  AddNumber(command, "--duration", &flags->duration, 0, "Seconds to time kernels of each plan (default 2)");
  AddNumber(command, "--warm-up-ms", &flags->warm_up_ms, 0,
            "Length of the runs before, which do not count (default 200)");
  AddNumber(command, "--peak-gflops", &flags->peak_gflops, 0,
            "The device's float32 GFLOP/s, for the roofline (default: from its clock and units; opencl: unknown)");
  AddNumber(
      command, "--peak-gbs", &flags->peak_gbs, 0,
      "The device's memory bandwidth in GB/s, for the roofline (default: from its clock and bus; opencl: unknown)");
  command->add_option("--trace", flags->trace, "Write the kernels as a Chrome trace (chrome://tracing, Perfetto)")
      ->type_name("FILE");
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunProfile(*flags, session); }; });
}

}  // namespace diapason
