// diapason profile: where the time of a package goes, kernel by kernel.
#include "diapason/profile.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/json.h"
#include "base/replace_file.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/table.h"

namespace diapason {
namespace {

struct ProfileFlags {
  std::string package, trace;
  std::vector<std::string> dims;
  double duration = 2, warm_up_ms = 200, peak_gflops = 0, peak_gbs = 0;  // 0: not given
  bool json = false;
};

// What the time between kernels is.
const char* BetweenName(const api::PlanProfile& plan) {
  if (plan.between_us >= 0) return "between kernels";
  return plan.paths > 1 || plan.early_starts ? "saved by overlap" : "saved without timers";
}

Json JsonOf(const api::ProfiledKernel& kernel) {
  Json json{{"kernel", kernel.kernel},
            {"step", kernel.step},
            {"task", kernel.task},
            {"workload", kernel.workload},
            {"record", OrNull(kernel.record)},
            {"record_source", kernel.record_source.empty() ? Json(nullptr) : Json(kernel.record_source)},
            {"schedule", kernel.schedule},
            {"time_us", kernel.time_us},
            {"share", kernel.share},
            {"flops", OrNull(kernel.flops)},
            {"bytes", OrNull(kernel.bytes)},
            {"gflops_per_s", OrNull(kernel.gflops_per_s)},
            {"gb_per_s", OrNull(kernel.gb_per_s)},
            {"roofline", nullptr}};
  if (kernel.roofline.has_value())
    json["roofline"] = {{"limit_us", kernel.roofline->limit_us},
                        {"bound", kernel.roofline->compute ? "compute" : "memory"},
                        {"fraction", OrNull(kernel.roofline->fraction)}};
  return json;
}

Json JsonOf(const api::PlanProfile& plan) {
  Json kernels = Json::array();
  for (const api::ProfiledKernel& kernel : plan.kernels) kernels.push_back(JsonOf(kernel));
  Json json;
  json["sizes"] = Json::object();
  for (const auto& [symbol, size] : plan.sizes) json["sizes"][symbol] = size;
  json["latency_us"] = plan.latency_us;
  json["kernels_us"] = plan.kernels_us;
  json["disturbed_us"] = plan.disturbed_us;
  json["between_us"] = plan.between_us;
  json["runs"] = plan.runs;
  json["paths"] = plan.paths;
  json["kernels"] = kernels;
  return json;
}

Json JsonOf(const ProfileFlags& flags, const api::PackageProfile& profile) {
  Json list = Json::array();
  for (const api::PlanProfile& plan : profile.plans) list.push_back(JsonOf(plan));
  return {{"package", flags.package},
          {"network", profile.network},
          {"target", profile.target},
          {"device", profile.device},
          {"peak_gflops_per_s", OrNull(profile.peak_gflops)},
          {"peak_gb_per_s", OrNull(profile.peak_gbs)},
          {"plans", list}};
}

// Trace Event Format, complete events: kernels in order, each as long as its median; one process for each plan.
Json TraceOf(const api::PackageProfile& profile) {
  Json events = Json::array();
  for (size_t p = 0; p < profile.plans.size(); ++p) {
    const api::PlanProfile& plan = profile.plans[p];
    const int pid = static_cast<int>(p) + 1;
    const std::string name =
        plan.sizes.empty() ? profile.network : absl::StrCat(profile.network, ", ", api::SizesText(plan.sizes));
    events.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", pid}, {"tid", 1}, {"args", {{"name", name}}}});
    events.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", pid}, {"tid", 1}, {"args", {{"name", "kernels in order"}}}});
    double at = 0;
    const auto add = [&](const std::string& event, const char* category, double us, Json args) {
      events.push_back({{"name", event},
                        {"cat", category},
                        {"ph", "X"},
                        {"pid", pid},
                        {"tid", 1},
                        {"ts", at},
                        {"dur", us},
                        {"args", std::move(args)}});
      at += us;
    };
    for (const api::ProfiledKernel& kernel : plan.kernels) add(kernel.kernel, "kernel", kernel.time_us, JsonOf(kernel));
    if (plan.disturbed_us > 0) add("disturbed kernels", "rest", plan.disturbed_us, Json::object());
    if (plan.between_us > 0) add(BetweenName(plan), "rest", plan.between_us, Json::object());
  }
  return {{"traceEvents", events}, {"displayTimeUnit", "ns"}};
}

absl::Status WriteTrace(const std::string& path, const api::PackageProfile& profile) {
  RETURN_IF_ERROR(CheckReplaceable(path, "trace of this program", {"{\n \"displayTimeUnit\"", "{\n \"traceEvents\""}));
  return ReplaceFile(path, [&](std::ostream& out) {
    out << JsonText(TraceOf(profile), {.indent = 1}) << "\n";
    return absl::OkStatus();
  });
}

std::string ShareText(double share) { return absl::StrFormat("%.1f%%", share * 100); }

void PrintPlan(std::ostream& out, const api::PlanProfile& plan) {
  if (!plan.sizes.empty()) out << "plan " << api::SizesText(plan.sizes) << "\n";
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
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const api::ProfiledKernel& kernel = plan.kernels[i];
    const bool reached = kernel.roofline.has_value() && kernel.roofline->fraction.has_value();
    table.AddRow({absl::StrCat(i + 1), Digits(kernel.time_us), ShareText(kernel.share),
                  Digits(kernel.gflops_per_s.value_or(0)), Digits(kernel.gb_per_s.value_or(0)),
                  reached ? ShareText(*kernel.roofline->fraction) : "-",
                  !kernel.roofline.has_value() ? "-"
                  : kernel.roofline->compute   ? "compute"
                                               : "memory",
                  RecordText(kernel.record, kernel.record_source), kernel.kernel, kernel.task});
  }
  out << table.ToString();
  const auto text = [](double us) { return Duration(us * 1e-6); };
  const auto part = [&](double us) {
    return absl::StrCat(text(std::abs(us)), " (", ShareText(us / plan.latency_us), ")");
  };
  out << Count(static_cast<int64_t>(plan.kernels.size()), "kernel") << " " << text(plan.kernels_us);
  constexpr double kWorthNaming = 0.0005;
  if (std::abs(plan.disturbed_us) >= kWorthNaming * plan.latency_us)
    out << ", disturbed kernels " << part(plan.disturbed_us);
  out << ", " << BetweenName(plan) << " " << part(plan.between_us) << ", latency " << text(plan.latency_us)
      << "; medians of " << Count(plan.runs, "run") << "\n";
  if (plan.paths > 1) out << "in a real run independent kernels run side by side, on " << plan.paths << " paths\n";
}

void PrintText(std::ostream& out, const api::PackageProfile& profile) {
  out << profile.network << " for " << profile.target << " on " << profile.device;
  if (profile.peak_gflops.has_value() && profile.peak_gbs.has_value())
    out << ", peak " << Digits(*profile.peak_gflops) << " GFLOP/s (float32) and " << Digits(*profile.peak_gbs)
        << " GB/s";
  out << "\n";
  for (const api::PlanProfile& plan : profile.plans) PrintPlan(out, plan);
}

absl::Status RunProfile(const ProfileFlags& flags, Session& session) {
  api::ProfileOptions options;
  options.package = flags.package;
  options.dims = flags.dims;
  options.warm_up_ms = flags.warm_up_ms;
  options.seconds = flags.duration;
  options.peak_gflops = flags.peak_gflops;
  options.peak_gbs = flags.peak_gbs;
  options.hooks = HooksOf(session);
  ASSIGN_OR_RETURN(const api::PackageProfile profile, api::Profile(options));
  if (!flags.trace.empty()) RETURN_IF_ERROR(WriteTrace(flags.trace, profile));
  if (flags.json)
    WriteDocument(session.out, {"profile", 2}, JsonOf(flags, profile));
  else
    PrintText(session.out, profile);
  return absl::OkStatus();
}

}  // namespace

void AddProfile(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("profile", "Show the time of each kernel of a package");
  command->footer(
      "The network runs with random inputs, and each kernel is timed in place, so that it finds the caches as in a "
      "real run. The latency is that of real runs, without timers. Its difference from the sum of the kernels' medians "
      "is shown by cause: kernels that were disturbed, different ones in each run, and time between kernels, which is "
      "negative if kernels overlap. GFLOP/s counts the operations that a kernel executes, GB/s each byte that it "
      "accesses once. The roofline is the fraction of the speed that the device's peaks allow; above 100%, data came "
      "from caches.");
  auto flags = std::make_shared<ProfileFlags>();
  command->add_option("PACKAGE", flags->package, "Package that `diapason build` made, a folder or a .dpk file")
      ->required()
      ->type_name("");
  AddDimFlag(command, &flags->dims, "Size of a symbolic dimension, as in seq=128 (default: all sizes of the package)");
  AddNumber(command, "--duration", &flags->duration, 0, "Seconds to time kernels of each plan (default 2)");
  AddNumber(command, "--warm-up-ms", &flags->warm_up_ms, 0, "Milliseconds of warm-up before measuring (default 200)");
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
