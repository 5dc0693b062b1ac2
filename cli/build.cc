// diapason build: applies the best record of each task and makes a runnable package.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <optional>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/defaults.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/plan_json.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "diapason/compiler.h"

namespace diapason {
namespace {

struct BuildFlags {
  ModelFlags model;
  ImportFlags import;
  std::string target, service, out, mask;
  std::vector<std::string> histories;
  double build_timeout = 120;
  std::optional<double> refine;
  bool json = false, no_check = false, no_measure = false, no_shipped = false, verbose = false;
  SecurityFlags security;
  const CLI::Option *history_flag = nullptr, *service_flag = nullptr;
};

Json JsonOf(const api::BuiltPlan& built) {
  const auto text = [](const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); };
  Json tasks = Json::array(), choices = Json::array();
  for (const api::BuiltTask& task : built.tasks) {
    tasks.push_back({{"task_id", task.id},
                     {"task", task.name},
                     {"count", task.count},
                     {"workload", task.workload},
                     {"record", OrNull(task.record)},
                     {"record_source", text(task.record_source)},
                     {"record_uuid", text(task.record_uuid)},
                     {"fallback", task.record_source.empty()},
                     {"schedule", task.schedule}});
    if (!task.writes.empty()) tasks.back()["writes"] = task.writes;
    if (task.estimated_us.has_value()) tasks.back()["estimated_us"] = *task.estimated_us;
  }
  for (const api::FusionChoice& one : built.fusion_choices)
    choices.push_back({{"choice_point", one.choice_point}, {"alternative", one.alternative}});
  Json report{{"fusion_choices", choices},
              {"tasks_us", OrNull(built.tasks_us)},
              {"estimated_us", OrNull(built.estimated_us)},
              {"latency_us", OrNull(built.latency_us)},
              {"tasks", tasks}};
  if (built.check.has_value()) report["check"] = CheckJson(*built.check);
  report["refined"] = {{"compared", built.refined.compared},
                       {"replaced", built.refined.replaced},
                       {"regrouped", built.refined.regrouped},
                       {"ratio", built.refined.ratio},
                       {"ended_early", built.refined.ended_early}};
  if (built.sizes.empty()) return report;
  report["sizes"] = built.sizes;
  report["padding"] = Json::object();
  for (const auto& [symbol, padding] : built.padding) report["padding"][symbol] = PaddingJson(padding);
  return report;
}

void PrintJson(std::ostream& out, const api::BuildReport& built) {
  Json libraries = Json::array();
  for (const auto& library : built.libraries) libraries.push_back(library.name);
  Json report{{"out", built.out},
              {"target", built.target},
              {"libraries", libraries},
              {"kernels_used", built.kernels_used},
              {"kernels_stored", built.kernels_stored}};
  if (built.plans.front().sizes.empty()) {
    report.update(JsonOf(built.plans.front()));
  } else {
    for (const api::BuiltPlan& plan : built.plans) report["plans"].push_back(JsonOf(plan));
  }
  WriteDocument(out, {"build", 2}, report);
}

// "12 tasks, 3 with the best record, ...".
void PrintBuilt(std::ostream& out, const api::BuiltPlan& built) {
  out << Count(built.task_count, "task") << ", " << built.task_count - built.fallback_count << " with the best record"
      << (built.shipped_count == 0 ? "" : absl::StrCat(" (", built.shipped_count, " of these shipped with Diapason)"))
      << ", " << built.fallback_count << " with the fallback schedule";
  if (built.fallback_count == 0) out << "; estimated latency " << Duration(built.estimated_us.value_or(0) * 1e-6);
  if (built.latency_us.has_value()) out << ", measured here " << Duration(*built.latency_us * 1e-6);
}

// What was chosen and found out beside it.
void PrintMore(std::ostream& out, const api::BuiltPlan& built) {
  const api::RefinedRecords& refined = built.refined;
  for (const api::FusionChoice& one : built.fusion_choices)
    out << "fusion at " << one.choice_point << ": " << one.alternative
        << (refined.regrouped > 0 ? "\n" : ", which the history says is faster than the default\n");
  if (refined.replaced > 0 || refined.regrouped > 0)
    out << Count(refined.replaced, "task") << " with the record, and " << Count(refined.regrouped, "choice point")
        << " with the fusion alternative, that is fastest in the network instead of alone ("
        << Count(refined.compared, "network")
        << " compared): " << absl::StrFormat("latency %.3f of what it was\n", refined.ratio);
  if (refined.ended_early)
    out << "the time for comparing records in the network was up after " << Count(refined.compared, "network")
        << "; a longer --refine compares more\n";
  if (built.check.has_value()) out << built.check->summary << "\n";
}

std::string LibrariesText(const api::BuildReport& built) {
  std::string text;
  for (const auto& library : built.libraries) absl::StrAppend(&text, "; needs ", library.title, " where it runs");
  return text;
}

void PrintPlans(std::ostream& out, const api::BuildReport& built) {
  out << "built " << built.out << ": " << Count(static_cast<int64_t>(built.plans.size()), "plan") << ", "
      << Count(built.kernels_stored, "kernel") << " for " << Count(built.kernels_used, "task") << LibrariesText(built)
      << "\n";
  for (const api::BuiltPlan& plan : built.plans) {
    out << "plan " << api::SizesText(plan.sizes) << ": ";
    PrintBuilt(out, plan);
    out << "\n";
    PrintMore(out, plan);
  }
  // Said once of each symbol: most often it is the same for all plans.
  std::map<std::string, std::string> refused;
  for (const api::BuiltPlan& plan : built.plans)
    for (const auto& [symbol, padding] : plan.padding)
      if (!padding.safe) refused.emplace(symbol, padding.reason);
  for (const auto& [symbol, why] : refused)
    out << "inputs between the sizes of " << symbol
        << " are refused, since padding is not known to be harmless: " << why << "\n";
}

void PrintText(std::ostream& out, const api::BuildReport& built) {
  if (!built.plans.front().sizes.empty()) return PrintPlans(out, built);
  out << "built " << built.out << ": ";
  PrintBuilt(out, built.plans.front());
  out << LibrariesText(built) << "\n";
  PrintMore(out, built.plans.front());
}

absl::Status RunBuild(BuildFlags& flags, Session& session) {
  std::string history = absl::StrJoin(flags.histories, ", ");
  RETURN_IF_ERROR(ChooseSource("a build", flags.history_flag, &history, flags.service_flag, &flags.service));
  if (history.empty()) flags.histories.clear();
  api::BuildOptions options;
  ASSIGN_OR_RETURN(options.model, ModelOf(flags.model, flags.import, flags.mask));
  options.target = flags.target;
  options.out = flags.out;
  options.histories = flags.histories;
  options.shipped_records = !flags.no_shipped;
  options.build_timeout_seconds = flags.build_timeout;
  options.check = !flags.no_check;
  options.measure = !flags.no_measure;
  options.refine_seconds = flags.refine;
  options.list_fallbacks = flags.verbose;
  options.hooks = HooksOf(session);
  if (!flags.service.empty()) options.service = EndpointOf(flags.service, flags.security);
  ASSIGN_OR_RETURN(const api::BuildReport built, api::Build(options));
  flags.json ? PrintJson(session.out, built) : PrintText(session.out, built);
  return absl::OkStatus();
}

}  // namespace

void AddBuild(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("build", "Build a runnable package with the best schedules of a history");
  command->footer(
      "A task without a verified record gets the fallback schedule; a warning says how many do. Of several ways to "
      "fuse the network (a residual addition with either branch or separately, a concatenation in place or "
      "separately), the one with the lowest estimated latency is built. If the device is present, the network is run "
      "on several inputs, many times, and compared with the reference implementation. Records that make it wrong are "
      "found, marked in the history and replaced; if it stays wrong, no package is written. With --dim, the package "
      "has a plan for each combination of sizes; plans share weights and kernels. Without the device, the package is "
      "built but not checked.");
  auto flags = std::make_shared<BuildFlags>();
  AddModelFlags(command, &flags->model);
  AddImportFlags(command, &flags->import);
  AddTargetFlag(command, &flags->target, &flags->model);
  AddMaskFlag(command, &flags->mask);
  flags->history_flag =
      command
          ->add_option("--history", flags->histories,
                       "Source of records: a history, a file that `diapason history export` wrote, or the http:// or "
                       "https:// URL of one; may be repeated, and the first with a verified record of a task is used")
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->type_name("FILE");
  flags->service_flag = command
                            ->add_option("--service", flags->service,
                                         "Take the records from this service; of several, the one that answers is used")
                            ->type_name("HOST:PORT[,HOST:PORT]");
  command->add_flag(
      "--no-shipped-records", flags->no_shipped,
      "Do not use the records that come with Diapason (`diapason records`); otherwise they are used last");
  AddSecurityFlags(command, &flags->security);
  command
      ->add_option("--out", flags->out,
                   "Folder to write, or a single file if the name ends in .dpk; an existing package is replaced")
      ->required()
      ->type_name("PATH");
  AddNumber(command, "--build-timeout", &flags->build_timeout, 0, "Seconds to compile a task (default 120)");
  command
      ->add_option(
          "--refine", flags->refine,
          "Seconds to try fusion alternatives (up to 50% slower by the times of their tasks) and verified records that "
          "are nearly as fast as the best of their task (up to 4% slower, or 10% where it lets the next kernel start "
          "at another moment) in the whole network, and to use those that "
          "make it faster; for each plan, if the network is checked and measured. 0: records and alternatives that "
          "are fastest by themselves (default 10 for all plans together for cuda, unless the target has -caches, else "
          "0)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("SECONDS");
  command->add_flag("--no-measure", flags->no_measure,
                    "Do not measure the package's latency. Otherwise it is measured if the device is present and the "
                    "history has records of all tasks, and the history keeps it to correct later estimates");
  command->add_flag("--no-check", flags->no_check,
                    "Do not run the network to compare it with the reference implementation");
  command->add_flag("--verbose", flags->verbose, "List the tasks without a verified record, instead of their number");
  AddJsonFlag(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunBuild(*flags, session); }; });
}

}  // namespace diapason
