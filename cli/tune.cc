// diapason tune: searches schedules for a network's tasks and stores every measurement in a history.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/plan_json.h"
#include "cli/progress.h"
#include "cli/progress_snapshot.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "cli/tune_flags.h"
#include "cli/tune_summary.h"
#include "diapason/devices.h"
#include "diapason/history.h"
#include "diapason/tuner.h"

namespace diapason {
namespace {

// Seconds until there is a device. Launched workers wait for their turn in the queue of the cluster.
constexpr double kWait = 60, kWaitForLaunched = 3600;
// Rows of the table that is printed last.
constexpr size_t kTasksAtTheEnd = 10;

// How busy the workers were; null when they cannot tell.
Json WorkersJson(const std::optional<api::WorkerLoad>& load) {
  if (!load.has_value()) return nullptr;
  Json phases = Json::object();
  for (const auto& [phase, seconds] : load->run_phases) phases[phase] = seconds;
  return {{"builders", load->builders},
          {"builds", load->builds},
          {"builds_per_s", load->builds_per_s},
          {"builder_utilisation", load->builder_utilisation},
          {"device_count", load->devices},
          {"runs", load->runs},
          {"runs_per_s", load->runs_per_s},
          {"runner_utilisation", load->runner_utilisation},
          {"runs_stopped_early", load->runs_stopped_early},
          {"run_phases", phases},
          {"builder_restarts", load->builder_restarts},
          {"runner_restarts", load->runner_restarts}};
}

Json ChoicePointsJson(const std::vector<api::ChoicePoint>& points) {
  Json list = Json::array();
  for (const api::ChoicePoint& point : points) {
    Json alternatives = Json::array();
    for (const api::ChoicePoint::Alternative& one : point.alternatives)
      alternatives.push_back({{"alternative", one.name}, {"task_ids", one.tasks}});
    list.push_back({{"choice_point", point.name}, {"alternatives", alternatives}, {"best", point.best}});
  }
  return list;
}

void PrintJson(std::ostream& out, const api::TuneResult& result) {
  const api::Progress& p = result.progress;
  Json tasks = Json::array(), errors = Json::object();
  for (const api::TaskProgress& task : p.tasks) {
    tasks.push_back({{"task_id", task.id},
                     {"task", task.name},
                     {"count", task.count},
                     {"trials", task.trials},
                     {"failed", task.failed},
                     {"best_us", OrNull(task.best_us)},
                     {"gflops_per_s", OrNull(task.gflops_per_s)},
                     {"fallback_us", OrNull(task.fallback_us)},
                     {"verified", task.verified},
                     {"record", OrNull(task.record)},
                     {"algorithm", task.algorithm},
                     {"sketch", task.sketch},
                     {"workload", task.workload}});
  }
  for (const auto& [kind, count] : p.errors) errors[kind] = count;
  const api::StageTimes& s = p.stages;
  Json json{{"trials", p.trials},
            {"measured", p.measured},
            {"failed", p.failed},
            {"elapsed_s", p.elapsed_s},
            {"trials_per_s", p.trials_per_s},
            {"tasks_us", OrNull(p.tasks_us)},
            {"estimated_us", OrNull(p.estimated_us)},
            {"estimated_fallback_us", OrNull(p.estimated_fallback_us)},
            {"tasks", tasks},
            {"choice_points", ChoicePointsJson(result.choice_points)},
            {"stages",
             {{"search_s", s.search_s},
              {"build_s", s.build_s},
              {"run_s", s.run_s},
              {"train_s", s.train_s},
              {"candidates", p.candidates},
              {"candidates_per_s", s.candidates_per_s},
              {"rounds", s.rounds},
              {"trainings", s.trainings},
              {"verifications", s.verifications},
              {"confirmations", s.confirmations},
              {"workers", WorkersJson(result.workers)}}},
            {"errors", errors},
            {"stop_reason", result.stop_reason}};
  for (const api::NetworkCheck& check : result.checks) {
    Json one = CheckJson(check);
    if (check.sizes.empty()) {
      json["check"] = std::move(one);
      continue;
    }
    one["sizes"] = check.sizes;
    json["checks"].push_back(std::move(one));
  }
  WriteDocument(out, {"tune", 2}, json);
}

// "gemm 9, winograd(4) 5, library/cudnn 2": by how many tasks have such a best, the most frequent first. Views tell
// kernels of ours apart, names of sketches the libraries.
std::string WinnersText(const api::Progress& progress) {
  std::map<std::string, int> count;
  for (const api::TaskProgress& task : progress.tasks)
    if (task.best_us.has_value()) ++count[task.algorithm == "library" ? task.sketch : task.algorithm];
  std::vector<std::pair<std::string, int>> sorted(count.begin(), count.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return absl::StrJoin(sorted, ", ",
                       [](std::string* out, const auto& one) { absl::StrAppend(out, one.first, " ", one.second); });
}

// "default fusion at 6 of 8 choice points, else: layer1.0.add: add apart, ...".
std::string CutText(const api::TuneResult& result) {
  const std::vector<api::FusionChoice>& won = result.fusion_choices;
  const std::string points = Count(static_cast<int64_t>(result.choice_points.size()), "choice point");
  if (won.empty()) return absl::StrCat("default fusion at all of ", points);
  return absl::StrCat("default fusion at ", result.choice_points.size() - won.size(), " of ", points,
                      ", else: ", absl::StrJoin(won, ", ", [](std::string* out, const api::FusionChoice& one) {
                        absl::StrAppend(out, one.choice_point, ": ", one.alternative);
                      }));
}

// The slowest tasks, with the schedules of their bests.
void PrintTasks(std::ostream& out, const api::Progress& progress) {
  ProgressSnapshot s = SnapshotOf(progress);
  for (size_t i = 0; i < s.tasks.size(); ++i) {
    const api::TaskProgress& task = progress.tasks[i];
    s.tasks[i].tuned = task.tuned || task.trials > 0;
    if (task.best_us.has_value()) s.tasks[i].schedule = task.verified ? task.sketch : task.sketch + " (not verified)";
  }
  out << "\nthe slowest tasks\n";
  for (const std::string& line : TableOfTasks(s.tasks, 0, 0, kTasksAtTheEnd).lines) out << line << "\n";
  out << "\n";
}

// "estimated latency 19.10 ms (12 of 30 tasks timed)".
std::string LatencyText(const api::Progress& progress) {
  if (!progress.estimated_us.has_value()) {
    const auto counts = [](const api::TaskProgress& task) { return task.count > 0; };
    const auto all = std::count_if(progress.tasks.begin(), progress.tasks.end(), counts);
    const auto timed = std::count_if(progress.tasks.begin(), progress.tasks.end(),
                                     [&](const api::TaskProgress& task) { return counts(task) && task.best_us; });
    return absl::StrCat("estimated latency ", Duration(progress.expected_us * 1e-6), " (", timed, " of ", all,
                        " tasks timed)");
  }
  std::string text = absl::StrCat("estimated latency ", Duration(*progress.estimated_us * 1e-6));
  if (progress.estimated_us != progress.tasks_us)
    absl::StrAppend(&text, " (the tasks' times add up to ", Duration(progress.tasks_us.value_or(0) * 1e-6),
                    "; corrected by what the network took when it was last measured)");
  return text;
}

void PrintText(std::ostream& out, const api::TuneResult& result) {
  const api::Progress& p = result.progress;
  PrintTasks(out, p);
  if (const std::string winners = WinnersText(p); !winners.empty()) out << "alternatives that won: " << winners << "\n";
  if (!result.choice_points.empty()) out << CutText(result) << "\n";
  if (result.checks.size() == 1 && result.checks.front().latency_us.has_value()) {
    const double measured_us = *result.checks.front().latency_us;
    out << "measured latency " << Duration(measured_us * 1e-6);
    if (p.tasks_us.has_value()) out << " (the tasks' times add up to " << Duration(*p.tasks_us * 1e-6) << ")";
  } else {
    out << LatencyText(p);
  }
  if (p.expected_fallback_us > 0) out << ", with fallback schedules " << Duration(p.expected_fallback_us * 1e-6);
  out << "\n"
      << Count(p.measured, "trial") << " in " << Duration(p.elapsed_s) << " (" << Digits(p.trials_per_s) << "/s), "
      << p.trials << " in the history, of these " << p.failed << " failed; " << p.candidates << " candidates searched ("
      << Digits(p.stages.candidates_per_s) << "/s)\n";
  if (!result.stop_reason.empty()) out << "stopped: " << result.stop_reason << "\n";
  for (const api::NetworkCheck& check : result.checks)
    out << (check.sizes.empty() ? "" : api::SizesText(check.sizes) + ": ") << check.summary << "\n";
}

// Flags that go with a fleet only, or with this host's devices only.
absl::Status CheckFleetFlags(const TuneFlags& flags) {
  const char* alone = !flags.device.empty() ? "--device" : !flags.labels.empty() ? "--selector" : nullptr;
  if (flags.tracker.empty() && alone != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(alone, " chooses among the devices of a fleet; name its tracker with --tracker"));
  }
  if (flags.tracker.empty()) return absl::OkStatus();
  if (flags.builders > 0) {
    return absl::InvalidArgumentError(
        "--builders is for this host's own processes; with --tracker the workers say how many they have");
  }
  if (!flags.sandbox.empty()) {
    return absl::InvalidArgumentError(
        "--sandbox is for this host's own processes; with --tracker it is for each 'diapason worker' to say");
  }
  if (!flags.keep_environment.empty()) {
    return absl::InvalidArgumentError(
        "--keep-env is for this host's own processes; with --tracker it is for each 'diapason worker' to say");
  }
  return absl::OkStatus();
}

// "resnet-18 for cpu on AMD EPYC, AVX-512".
absl::StatusOr<std::string> TitleOf(const TuneFlags& flags) {
  ASSIGN_OR_RETURN(const std::string target, api::NormalizeTarget(flags.target));
  std::string title = absl::StrCat(flags.model.model, " for ", target);
  if (!flags.tracker.empty()) return title;
  ASSIGN_OR_RETURN(const api::LocalDevice here, api::FindDevice(flags.target));
  return absl::StrCat(title, " on ", here.title);
}

ProgressStyle StyleOf(const TuneFlags& flags, const Session& session, std::string title) {
  const bool live = flags.json ? session.environment.err_is_terminal : session.environment.out_is_terminal;
  return {std::move(title), live, session.environment.colour, session.environment.terminal_size};
}

// What only this command asks of the library, beside the flags that `submit` has too.
absl::StatusOr<api::TuneOptions> AllOptionsOf(const TuneFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(api::TuneOptions options, TuneOptionsOf(flags));
  options.model.import_memory_gib = flags.import.memory_gib;
  options.model.import_seconds = flags.import.seconds;
  options.history = flags.history;
  options.without = absl::StrSplit(flags.without, ',', absl::SkipEmpty());
  options.builders = static_cast<int>(flags.builders);
  if (!flags.sandbox.empty()) options.sandbox = flags.sandbox;
  options.keep_environment = flags.keep_environment;
  if (!flags.tracker.empty()) options.fleet.tracker = EndpointOf(flags.tracker, flags.security);
  options.fleet.wait_seconds = flags.wait >= 0 ? flags.wait : flags.launch.given() ? kWaitForLaunched : kWait;
  options.fleet.launch = LaunchRequestOf(flags.launch);
  options.count_workers = flags.json;
  options.name = session.command_line;
  options.hooks = HooksOf(session);
  return options;
}

absl::Status RunTune(const TuneFlags& flags, Session& session) {
  RETURN_IF_ERROR(CheckFleetFlags(flags));
  ASSIGN_OR_RETURN(api::TuneOptions options, AllOptionsOf(flags, session));
  std::atomic<bool> stop{false};
  options.hooks.stop = &stop;
  std::optional<InterruptGuard> interrupt;
  std::optional<ProgressView> view;
  options.on_start = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::string title, TitleOf(flags));
    view.emplace(flags.json ? session.err : session.out, StyleOf(flags, session, std::move(title)));
    interrupt.emplace(&stop);
    if (flags.launch.given()) StartLog({});
    return absl::OkStatus();
  };
  options.progress = [&](const api::Progress& progress) {
    progress.ended ? view->Finish(SnapshotOf(progress)) : view->Update(SnapshotOf(progress));
  };
  ASSIGN_OR_RETURN(const api::TuneResult tuned, api::Tune(options));
  flags.json ? PrintJson(session.out, tuned) : PrintText(session.out, tuned);
  if (!interrupt->requested())
    for (const std::string& doubt : TuneDoubts(tuned, flags.target)) Warn(session, doubt);
  if (interrupt->requested()) {
    return absl::CancelledError(absl::StrCat("stopped by Ctrl-C after ", Count(tuned.progress.measured, "trial"),
                                             "; all are in ", api::HistoryName(flags.history),
                                             ", the same command resumes there"));
  }
  if (tuned.check_status.ok() && !flags.json) session.out << "next: " << BuildCommand(flags) << "\n";
  return tuned.check_status;
}

}  // namespace

void AddTune(CLI::App& app, CommandBody& chosen) {
  CLI::App* command =
      app.add_subcommand("tune", "Search for fast schedules of a network and store all measurements in a history");
  command->footer(
      "At the end, after --trials or --seconds, the network is assembled from the best records on the measuring "
      "device, run on several inputs, many times, and compared with the reference implementation. Records that make it "
      "wrong are found, marked in the history and replaced by the next best; the exit status is 0 only if the network "
      "is correct in the end. Ctrl-C finishes the running measurements, keeps all results and exits with 130; a second "
      "Ctrl-C stops at once. With -libs=cudnn,cublas in the target, calls of these libraries compete with generated "
      "kernels; a library that is not installed is omitted with a warning.");
  auto flags = std::make_shared<TuneFlags>();
  AddTuneFlags(command, flags.get());
  AddImportFlags(command, &flags->import);
  command->add_option("--history", flags->history, "History to add to; created if it does not exist")
      ->required()
      ->type_name("FILE");
  command
      ->add_option(
          "--without", flags->without,
          "Algorithms to exclude from the search, separated by commas: attention (its two products on tensor cores), "
          "gemm, rows (row-wise im2col), strassen, winograd. Records of these in the history still count")
      ->type_name("ALGORITHMS");
  AddWhole(command, "--builders", &flags->builders, {1, 1024},
           "Number of processes that compile (default: depends on cores and memory)");
  command->add_option("--tracker", flags->tracker, "Measure on the fleet of this tracker instead of on this host")
      ->type_name("HOST:PORT[,HOST:PORT]")
      ->group("Measuring on a fleet");
  AddNumber(
      command, "--wait-timeout", &flags->wait, 0,
      "Seconds to wait for the tracker (60 at most) and for a device of the fleet (default 60, with --launch 3600)")
      ->group("Measuring on a fleet");
  AddLaunchFlags(command, &flags->launch);
  AddSecurityFlags(command, &flags->security);
  AddSandboxFlag(command, &flags->sandbox);
  AddKeepEnvironmentFlag(command, &flags->keep_environment);
  AddJsonFlagBesideProgress(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTune(*flags, session); }; });
}

}  // namespace diapason
