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
#include "api/check.h"
#include "api/tune_job.h"
#include "base/check.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/document.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/plan_json.h"
#include "cli/progress.h"
#include "cli/service_flags.h"
#include "cli/table.h"
#include "cli/tune_flags.h"
#include "cli/tune_summary.h"
#include "db/history.h"
#include "db/history_name.h"
#include "scheduler/progress.h"
#include "service/measurer.h"
#include "service/measuring_judge.h"
#include "service/target.h"
#include "service/worker_pool.h"

namespace diapason {
namespace {

// Seconds until there is a device. Launched workers wait for their turn in the queue of the cluster.
constexpr double kWait = 60, kWaitForLaunched = 3600;
// Rows of the table that is printed last.
constexpr size_t kTasksAtTheEnd = 10;

ProgressSnapshot SnapshotOf(const TuneReport& report, const TuneSpec& spec) {
  ProgressSnapshot s;
  s.elapsed_s = report.seconds;
  s.trials = report.trials;
  s.measured = report.measured;
  s.failed = report.failed;
  s.trial_limit = spec.trial_limit();
  if (spec.seconds > 0) s.seconds_limit = spec.seconds;
  s.searched = report.stages.candidates;
  s.errors = report.errors;
  s.total_seconds = report.estimated_us.value_or(report.expected_us) * 1e-6;
  for (const TaskReport& task : report.tasks) {
    ProgressSnapshot::Task row;
    row.id = task.id + 1;
    row.name = task.name;
    row.count = task.weight;
    row.trials = task.trials;
    row.tuned = task.selected;
    if (task.best_us.has_value()) row.best_seconds = *task.best_us * 1e-6;
    if (task.fallback_us.has_value()) row.fallback_seconds = *task.fallback_us * 1e-6;
    row.expected_seconds = task.expected_us * 1e-6;
    s.tasks.push_back(std::move(row));
  }
  return s;
}

// Shows the run.
class TuneListener : public ProgressListener {
 public:
  TuneListener(const TuneSpec& spec, const Partition& partition, ProgressView& view, SpreadMeter& spread,
               Session& session)
      : spec_(spec), partition_(partition), view_(view), spread_(spread), session_(session) {}

  void OnRound(int task, int, const TuneReport& report) override {
    current_task_ = task + 1;
    OnTick(report);
  }
  void OnRecord(int, const TuningRecord& record, bool, const TuneReport& report) override {
    const MeasureError* error = record.error();
    ++built_;
    if (error == nullptr || error->stage >= MeasureStage::kLoad) ++run_;
    if (error == nullptr) spread_.Add(*record.timing());
    OnTick(report);
  }
  void OnVerified(int task, int64_t record, bool ok, const std::string& text) override {
    if (ok) return;
    Warn(session_, absl::StrCat("record ", record, " of task ", task + 1, " (", partition_.tasks[task].name,
                                ") computes a wrong result and is not used: ", text));
  }
  void OnWarning(const std::string& text) override { Warn(session_, text); }
  void OnTick(const TuneReport& report) override { view_.Update(Snapshot(report)); }
  void OnFinish(const TuneReport& report) override { view_.Finish(Snapshot(report)); }

 private:
  ProgressSnapshot Snapshot(const TuneReport& report) const {
    ProgressSnapshot s = SnapshotOf(report, spec_);
    s.built = built_;
    s.run = run_;
    s.current_task = current_task_;
    return s;
  }

  const TuneSpec& spec_;
  const Partition& partition_;
  ProgressView& view_;
  SpreadMeter& spread_;
  Session& session_;
  int64_t built_ = 0, run_ = 0, current_task_ = 0;
};

// How busy the workers were; nothing when they cannot tell.
Json WorkersJson(MeasureClient& client) {
  const absl::StatusOr<MeasureStatistics> s = client.Statistics();
  if (!s.ok()) return nullptr;
  const MeasureStatistics::RunSeconds& run = s->run_seconds;
  return {{"builders", s->builders},
          {"builds", s->builds},
          {"builds_per_s", s->builds_per_second()},
          {"builder_utilisation", s->builder_utilisation()},
          {"device_count", s->devices},
          {"runs", s->runs},
          {"runs_per_s", s->runs_per_second()},
          {"runner_utilisation", s->runner_utilisation()},
          {"runs_stopped_early", s->stopped_early},
          {"run_phases",
           {{"load_s", run.load},
            {"fill_s", run.fill},
            {"first_run_s", run.first_run},
            {"timing_s", run.timing},
            {"stopped_early_s", run.stopped_early},
            {"check_s", run.check},
            {"verify_s", run.verify}}},
          {"builder_restarts", s->builder_restarts},
          {"runner_restarts", s->runner_restarts}};
}

Json ChoicePointsJson(const TuneReport& report, const TuneWork& work) {
  Json points = Json::array();
  for (size_t b = 0; b < work.choice_points.size(); ++b) {
    Json alternatives = Json::array();
    for (int w : work.tried[b]) {
      Json ids = Json::array();
      for (const auto& [task, times] : work.choice_points[b].alternatives[w].tasks) ids.push_back(task + 1);
      alternatives.push_back({{"alternative", work.choice_points[b].alternatives[w].name}, {"task_ids", ids}});
    }
    const int best = work.tried[b][report.alternatives[b]];
    points.push_back({{"choice_point", work.choice_points[b].name},
                      {"alternatives", alternatives},
                      {"best", work.choice_points[b].alternatives[best].name}});
  }
  return points;
}

void PrintJson(std::ostream& out, const TuneReport& report, const TuneWork& work, MeasureClient& client,
               const std::vector<PlanCheck>& checks) {
  const Partition& partition = work.partition;
  Json tasks = Json::array(), errors = Json::object();
  for (const TaskReport& task : report.tasks) {
    tasks.push_back({{"task_id", task.id + 1},
                     {"task", task.name},
                     {"count", task.weight},
                     {"trials", task.trials},
                     {"failed", task.failed},
                     {"best_us", OrNull(task.best_us)},
                     {"gflops_per_s", OrNull(task.gflops_per_s)},
                     {"fallback_us", OrNull(task.fallback_us)},
                     {"verified", task.verified},
                     {"record", task.best_record > 0 ? Json(task.best_record) : Json(nullptr)},
                     {"algorithm", task.rewrite},
                     {"sketch", task.sketch},
                     {"workload", partition.tasks[task.id].workload_key}});
  }
  for (const auto& [kind, count] : report.errors) errors[kind] = count;
  const StageReport& s = report.stages;
  Json json{{"trials", report.trials},
            {"measured", report.measured},
            {"failed", report.failed},
            {"elapsed_s", report.seconds},
            {"trials_per_s", report.trials_per_s},
            {"tasks_us", OrNull(report.tasks_us)},
            {"estimated_us", OrNull(report.estimated_us)},
            {"estimated_fallback_us", OrNull(report.estimated_fallback_us)},
            {"tasks", tasks},
            {"choice_points", ChoicePointsJson(report, work)},
            {"stages",
             {{"search_s", s.search_s},
              {"build_s", s.build_s},
              {"run_s", s.run_s},
              {"train_s", s.train_s},
              {"candidates", s.candidates},
              {"candidates_per_s", s.candidates_per_s},
              {"rounds", s.rounds},
              {"trainings", s.trainings},
              {"verifications", s.verifications},
              {"confirmations", s.confirmations},
              {"workers", WorkersJson(client)}}},
            {"errors", errors},
            {"stop_reason", report.stopped}};
  for (const PlanCheck& check : checks) {
    Json one = CheckJson(api::CheckOf(check.report, check.sizes));
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
std::string WinnersText(const TuneReport& report) {
  std::map<std::string, int> count;
  for (const TaskReport& task : report.tasks)
    if (task.best_us.has_value()) ++count[task.rewrite == "library" ? task.sketch : task.rewrite];
  std::vector<std::pair<std::string, int>> sorted(count.begin(), count.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return absl::StrJoin(sorted, ", ",
                       [](std::string* out, const auto& one) { absl::StrAppend(out, one.first, " ", one.second); });
}

// "default fusion at 6 of 8 choice points, else: layer1.0.add: add apart, ...".
std::string FusionText(const TuneReport& report, const TuneWork& work) {
  const std::vector<NonDefaultFusion> won = NonDefaultFusions(work, report);
  const std::string count = Count(static_cast<int64_t>(work.choice_points.size()), "choice point");
  if (won.empty()) return absl::StrCat("default fusion at all of ", count);
  return absl::StrCat("default fusion at ", work.choice_points.size() - won.size(), " of ", count,
                      ", else: ", absl::StrJoin(won, ", ", [](std::string* out, const NonDefaultFusion& one) {
                        absl::StrAppend(out, one.choice_point, ": ", one.alternative);
                      }));
}

// The slowest tasks, with the schedules of their bests.
void PrintTasks(std::ostream& out, const TuneReport& report, const TuneSpec& spec) {
  ProgressSnapshot s = SnapshotOf(report, spec);
  for (size_t i = 0; i < s.tasks.size(); ++i) {
    const TaskReport& task = report.tasks[i];
    s.tasks[i].tuned = task.selected || task.trials > 0;
    if (task.best_us.has_value()) s.tasks[i].schedule = task.verified ? task.sketch : task.sketch + " (not verified)";
  }
  out << "\nthe slowest tasks\n";
  for (const std::string& line : TableOfTasks(s.tasks, 0, 0, kTasksAtTheEnd).lines) out << line << "\n";
  out << "\n";
}

// "estimated latency 19.10 ms (12 of 30 tasks timed)".
std::string LatencyText(const TuneReport& report) {
  if (!report.estimated_us.has_value()) {
    const auto counts = [](const TaskReport& task) { return task.weight > 0; };
    const auto all = std::count_if(report.tasks.begin(), report.tasks.end(), counts);
    const auto timed = std::count_if(report.tasks.begin(), report.tasks.end(),
                                     [&](const TaskReport& task) { return counts(task) && task.best_us; });
    return absl::StrCat("estimated latency ", Duration(report.expected_us * 1e-6), " (", timed, " of ", all,
                        " tasks timed)");
  }
  std::string text = absl::StrCat("estimated latency ", Duration(*report.estimated_us * 1e-6));
  if (report.estimated_us != report.tasks_us)
    absl::StrAppend(&text, " (the tasks' times add up to ", Duration(report.tasks_us.value_or(0) * 1e-6),
                    "; corrected by what the network took when it was last measured)");
  return text;
}

void PrintText(std::ostream& out, const TuneReport& report, const TuneWork& work, const TuneSpec& spec,
               const std::vector<PlanCheck>& checks) {
  PrintTasks(out, report, spec);
  if (const std::string winners = WinnersText(report); !winners.empty())
    out << "alternatives that won: " << winners << "\n";
  if (!work.choice_points.empty()) out << FusionText(report, work) << "\n";
  double corrected = 1;  // of estimates, by what was measured just now
  if (checks.size() == 1 && checks.front().report.run_seconds > 0) {
    if (report.estimated_us.value_or(0) > 0) corrected = checks.front().report.run_seconds * 1e6 / *report.estimated_us;
    out << "measured latency " << Duration(checks.front().report.run_seconds);
    if (report.tasks_us.has_value()) out << " (the tasks' times add up to " << Duration(*report.tasks_us * 1e-6) << ")";
  } else {
    out << LatencyText(report);
  }
  if (report.expected_fallback_us > 0)
    out << ", with fallback schedules " << Duration(report.expected_fallback_us * corrected * 1e-6);
  out << "\n"
      << Count(report.measured, "trial") << " in " << Duration(report.seconds) << " (" << Digits(report.trials_per_s)
      << "/s), " << report.trials << " in the history, of these " << report.failed << " failed; "
      << report.stages.candidates << " candidates searched (" << Digits(report.stages.candidates_per_s) << "/s)\n";
  if (!report.stopped.empty()) out << "stopped: " << report.stopped << "\n";
  if (!checks.empty()) out << Summary(checks) << "\n";
}

// Flags that go with a fleet only, or with this host's devices only.
absl::Status CheckFleetFlags(const TuneFlags& flags) {
  const char* alone = !flags.device.empty() ? "--device" : !flags.labels.empty() ? "--selector" : nullptr;
  if (flags.tracker.empty() && alone != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(alone, " chooses among the devices of a fleet; name its tracker with --tracker"));
  }
  if (flags.tracker.empty() && flags.launch.given())
    return absl::InvalidArgumentError("--launch starts workers of a fleet; name its tracker with --tracker");
  RETURN_IF_ERROR(CheckLaunchFlags(flags.launch));
  if (flags.tracker.empty()) return absl::OkStatus();
  if (flags.builders > 0) {
    return absl::InvalidArgumentError(
        "--builders is for this host's own processes; with --tracker the workers say how many they have");
  }
  if (flags.sandbox.has_value()) {
    return absl::InvalidArgumentError(
        "--sandbox is for this host's own processes; with --tracker it is for each 'diapason worker' to say");
  }
  if (!flags.keep_environment.empty()) {
    return absl::InvalidArgumentError(
        "--keep-env is for this host's own processes; with --tracker it is for each 'diapason worker' to say");
  }
  return DialWith("--tracker", flags.tracker, flags.security).status();
}

// Who measures: the fleet behind --tracker, or processes of this host.
absl::StatusOr<Fleet> StartMeasuring(const TuneFlags& flags, const TuneSpec& spec, const std::string& network,
                                     const std::atomic<bool>* stop) {
  if (!flags.tracker.empty()) {
    FleetOptions options;
    options.tracker = flags.tracker;
    ASSIGN_OR_RETURN(options.target, Target::Parse(spec.target));
    options.device_model = spec.device_model;
    options.client.name = absl::StrCat("tune ", network);
    ASSIGN_OR_RETURN(options.client.credentials, DialWith("--tracker", flags.tracker, flags.security));
    options.client.priority = spec.priority;
    options.client.weight = spec.weight;
    options.client.labels = {spec.labels.begin(), spec.labels.end()};
    options.wait_seconds = flags.wait >= 0 ? flags.wait : flags.launch.given() ? kWaitForLaunched : kWait;
    options.stop = stop;
    return ConnectFleet(options);
  }
  Fleet here;
  ASSIGN_OR_RETURN(here.target, ResolveMeasurableTarget(flags.target));
  ASSIGN_OR_RETURN(here.measurer,
                   StartMeasurer({here.target.target, here.target.device, static_cast<int>(flags.builders),
                                  flags.sandbox.value_or(SandboxMode::kAuto), flags.keep_environment}));
  return here;
}

// The workers of --launch; null without it.
absl::StatusOr<std::unique_ptr<WorkerPool>> StartPool(const TuneFlags& flags, std::function<void()> used_up) {
  if (!flags.launch.given()) return nullptr;
  ASSIGN_OR_RETURN(auto credentials, DialWith("--tracker", flags.tracker, flags.security));
  StartLog({});
  return StartWorkers(flags.launch, {.tracker = flags.tracker,
                                     .status = flags.tracker,
                                     .credentials = credentials,
                                     .owner = OwnerOfFile(flags.history),
                                     .used_up = std::move(used_up)});
}

absl::Status RunTune(const TuneFlags& flags, Session& session) {
  RETURN_IF_ERROR(CheckFleetFlags(flags));
  api::TuneJob job;
  job.without = absl::StrSplit(flags.without, ',', absl::SkipEmpty());
  RETURN_IF_ERROR(api::CheckWithout(job.without));
  ASSIGN_OR_RETURN(job.spec, SpecOf(flags));
  job.here = flags.tracker.empty();
  // Before a process is started or a history is made.
  std::string device;
  if (job.here) {
    ASSIGN_OR_RETURN(const ResolvedTarget here, ResolveMeasurableTarget(flags.target));
    device = absl::StrCat(" on ", DeviceTitle(here.target.kind, here.facts));
  }
  job.import = flags.import.limits();
  job.history = flags.history;
  job.name = session.command_line;
  std::atomic<bool> stop{false}, used_up{false};
  job.stop = &stop;
  std::optional<InterruptGuard> interrupt;
  std::unique_ptr<WorkerPool> pool;
  job.measure = [&](const TuneWork& work) -> absl::StatusOr<Fleet> {
    interrupt.emplace(&stop);
    ASSIGN_OR_RETURN(pool, StartPool(flags, [&] {
                       used_up = true;
                       stop = true;
                     }));
    return StartMeasuring(flags, job.spec, work.network, &stop);
  };
  std::ostream& shown_on = flags.json ? session.err : session.out;
  const bool live = flags.json ? session.environment.err_is_terminal : session.environment.out_is_terminal;
  ProgressView view(shown_on, {absl::StrCat(flags.model.model, " for ", job.spec.target, device), live,
                               session.environment.colour, session.environment.terminal_size});
  SpreadMeter spread;
  job.listen = [&](const TuneWork& work) {
    return std::make_unique<TuneListener>(job.spec, work.partition, view, spread, session);
  };
  job.warn = [&](const std::string& sentence) { Warn(session, sentence); };

  const auto no_worker_left = [&] {
    return NoWorkerLeft(flags.launch, absl::StrCat("all trials are in ", HistoryName(flags.history),
                                                   ", the same command resumes there"));
  };
  const absl::StatusOr<api::Tuned> tuned = api::RunTuneJob(job);
  if (!tuned.ok() && used_up) return no_worker_left();
  RETURN_IF_ERROR(tuned.status());
  const TuneReport& report = tuned->report;
  flags.json ? PrintJson(session.out, report, tuned->work, tuned->fleet.measurer->client(), tuned->checks)
             : PrintText(session.out, report, tuned->work, job.spec, tuned->checks);
  if (!interrupt->requested())
    for (const std::string& doubt : TuneDoubts(report, job.spec, spread.Typical())) Warn(session, doubt);
  if (interrupt->requested()) {
    return absl::CancelledError(absl::StrCat("stopped by Ctrl-C after ", Count(report.measured, "trial"),
                                             "; all are in ", HistoryName(flags.history),
                                             ", the same command resumes there"));
  }
  if (used_up) return no_worker_left();
  const absl::Status verdict = api::Verdict(*tuned);
  if (verdict.ok() && !flags.json) session.out << "next: " << BuildCommand(flags) << "\n";
  return verdict;
}

}  // namespace

void AddTune(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("tune", "Search fast schedules for a network and store them in a history");
  command->footer(
      "At the end, after --trials or --seconds, the network is assembled from the best records on the measuring device "
      "and compared with the "
      "reference implementation, on several inputs and many times. Records that make it wrong are found, marked in the "
      "history "
      "and replaced by the next "
      "best; the exit status is 0 only if the network is right at last. "
      "Ctrl-C finishes what is being measured, keeps everything and exits with 130; a second one stops at once. With "
      "-libs=cudnn,cublas in the target, calls of these libraries compete with generated kernels; one that is not on "
      "this "
      "machine is left out with a warning.");
  auto flags = std::make_shared<TuneFlags>();
  AddTuneFlags(command, flags.get());
  AddImportFlags(command, &flags->import);
  command->add_option("--history", flags->history, "History to add to; made when there is none")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--without", flags->without,
                   "Algorithms to leave out of the search, of attention (its two products on tensor cores), gemm, "
                   "rows, strassen and winograd, as in "
                   "strassen,winograd; records that a history has of them count as before")
      ->type_name("ALGORITHMS");
  AddWhole(command, "--builders", &flags->builders, {1, 1024},
           "Processes that compile (default: as the machine allows)");
  command->add_option("--tracker", flags->tracker, "Measure on the fleet of this tracker instead of on this host")
      ->type_name("HOST:PORT[,HOST:PORT]")
      ->group("Measuring on a fleet");
  AddNumber(
      command, "--wait-timeout", &flags->wait, 0,
      "Seconds to wait for the tracker, 60 at most, and for a device of the fleet (default 60, with --launch 3600)")
      ->group("Measuring on a fleet");
  AddLaunchFlags(command, &flags->launch);
  AddSecurityFlags(command, &flags->security);
  AddSandboxFlag(command, &flags->sandbox);
  AddKeepEnvironmentFlag(command, &flags->keep_environment);
  AddJsonFlagBesideProgress(command, &flags->json);
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTune(*flags, session); }; });
}

}  // namespace diapason
