// diapason tune: searches schedules for a network's tasks and stores every measurement in a history.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/interrupt.h"
#include "cli/measurer_adapter.h"
#include "cli/progress.h"
#include "cli/table.h"
#include "cli/target.h"
#include "cli/version.h"
#include "compiler/runtime/library_calls.h"
#include "compiler/tensor/check.h"
#include "compiler/tensor/serialize.h"
#include "db/history.h"
#include "scheduler/tuner.h"

namespace diapason {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kDefaultTrials = 1000;
constexpr int64_t kUnlimitedTrials = int64_t{1} << 40;

struct TuneFlags {
  ModelFlags model;
  std::string target, history, tasks;
  int64_t trials = 0;  // 0: not given
  double seconds = 0;  // 0: not given
  int64_t seed = 0, repeat = 3, number = 1, builders = 0, trials_per_round = 64;
  double min_repeat_ms = 100, build_timeout = 30, run_timeout = 10, early_stop = 0;
  std::string objective = "sum";
  bool no_race = false, flush_l2 = false, json = false;

  std::optional<int64_t> trial_limit() const {
    if (trials > 0) return trials;
    return seconds > 0 ? std::nullopt : std::optional<int64_t>(kDefaultTrials);
  }
};

// "1,4" as positions from 0.
absl::StatusOr<std::vector<int>> ParseTasks(const std::string& text, size_t count) {
  std::vector<int> positions;
  if (text.empty()) return positions;
  for (const std::string& part : static_cast<std::vector<std::string>>(absl::StrSplit(text, ','))) {
    int id = 0;
    if (!absl::SimpleAtoi(part, &id) || id < 1 || id > static_cast<int>(count)) {
      return absl::InvalidArgumentError(absl::StrCat("--tasks ", text, " does not name tasks of this network; give ids from 1 to ",
                                                     count, " as `diapason tasks` shows them, for example --tasks 1,4"));
    }
    if (std::find(positions.begin(), positions.end(), id - 1) == positions.end()) positions.push_back(id - 1);
  }
  return positions;
}

std::vector<TuningTask> TuningTasks(const std::string& network, const Partition& partition) {
  std::vector<TuningTask> tasks;
  for (const Task& task : partition.tasks) {
    tasks.push_back({task.name, task.dag, task.workload_key, {{network, static_cast<double>(task.weight)}}});
  }
  return tasks;
}

absl::Status CheckObjective(const std::string& text, const std::vector<TuningTask>& tasks) {
  std::vector<std::vector<NetworkWeight>> weights;
  for (const TuningTask& task : tasks) weights.push_back(task.weights);
  return Objective::Parse(text, weights).status();
}

std::vector<NetworkTask> NetworkLinks(const std::string& network, const Partition& partition) {
  std::vector<NetworkTask> links;
  for (const Task& task : partition.tasks) {
    links.push_back({network, task.workload_key, SerializeDag(task.dag), task.name, static_cast<double>(task.weight)});
  }
  return links;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

ProgressSnapshot SnapshotOf(const TuneReport& report, const TuneFlags& flags, const Partition& partition) {
  ProgressSnapshot s;
  s.elapsed_s = report.seconds;
  s.trials = report.trials;
  s.measured = report.measured;
  s.failed = report.failed;
  s.trial_limit = flags.trial_limit();
  if (flags.seconds > 0) s.seconds_limit = flags.seconds;
  s.searched = report.stages.candidates;
  s.errors = report.errors;
  if (report.estimated_us.has_value()) s.total_seconds = *report.estimated_us * 1e-6;
  for (const TaskReport& task : report.tasks) {
    ProgressSnapshot::Task row;
    row.id = task.id + 1;
    row.name = task.name;
    row.weight = task.weight;
    row.flops = partition.tasks[task.id].dag.flops();
    row.trials = task.trials;
    row.tuned = task.selected;
    if (task.best_us.has_value()) row.best_seconds = *task.best_us * 1e-6;
    s.tasks.push_back(std::move(row));
  }
  return s;
}

// Shows the run.
class TuneListener : public ProgressListener {
 public:
  TuneListener(const TuneFlags& flags, const Partition& partition, ProgressView& view, Session& session)
      : flags_(flags), partition_(partition), view_(view), session_(session) {}

  void OnRound(int task, int, const TuneReport& report) override {
    current_task_ = task + 1;
    OnTick(report);
  }
  void OnRecord(int, const TuningRecord& record, bool, const TuneReport& report) override {
    const MeasureError* error = record.error();
    ++built_;
    if (error == nullptr || error->stage >= MeasureStage::kLoad) ++run_;
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
    ProgressSnapshot s = SnapshotOf(report, flags_, partition_);
    s.built = built_;
    s.run = run_;
    s.current_task = current_task_;
    return s;
  }

  const TuneFlags& flags_;
  const Partition& partition_;
  ProgressView& view_;
  Session& session_;
  int64_t built_ = 0, run_ = 0, current_task_ = 0;
};

nlohmann::ordered_json Number(const std::optional<double>& value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

// How busy the workers were; nothing when they cannot tell.
nlohmann::ordered_json WorkersJson(MeasureClient& client) {
  const absl::StatusOr<MeasureStatistics> s = client.Statistics();
  if (!s.ok()) return nullptr;
  return {{"builders", s->builders},
          {"builds", s->builds},
          {"builds_per_s", s->builds_per_second()},
          {"builder_utilisation", s->builder_utilisation()},
          {"devices", s->devices},
          {"runs", s->runs},
          {"runs_per_s", s->runs_per_second()},
          {"runner_utilisation", s->runner_utilisation()},
          {"builder_restarts", s->builder_restarts},
          {"runner_restarts", s->runner_restarts}};
}

void PrintJson(std::ostream& out, const TuneReport& report, const Partition& partition, MeasureClient& client) {
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array(), errors = nlohmann::ordered_json::object();
  for (const TaskReport& task : report.tasks) {
    tasks.push_back({{"id", task.id + 1},
                     {"name", task.name},
                     {"weight", task.weight},
                     {"trials", task.trials},
                     {"failed", task.failed},
                     {"best_us", Number(task.best_us)},
                     {"gflops", Number(task.gflops)},
                     {"default_us", Number(task.default_us)},
                     {"verified", task.verified},
                     {"record", task.best_record},
                     {"sketch", task.sketch},
                     {"winner", task.best_us.has_value()
                                    ? nlohmann::ordered_json{{"view", task.view}, {"sketch", task.sketch}}
                                    : nlohmann::ordered_json(nullptr)},
                     {"workload", partition.tasks[task.id].workload_key}});
  }
  for (const auto& [kind, count] : report.errors) errors[kind] = count;
  const StageReport& s = report.stages;
  out << nlohmann::ordered_json{{"trials", report.trials},
                                {"measured", report.measured},
                                {"failed", report.failed},
                                {"seconds", report.seconds},
                                {"trials_per_s", report.trials_per_s},
                                {"estimated_us", Number(report.estimated_us)},
                                {"estimated_default_us", Number(report.estimated_default_us)},
                                {"tasks", tasks},
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
                                  {"workers", WorkersJson(client)}}},
                                {"errors", errors},
                                {"stopped", report.stopped}}
             .dump(2)
      << "\n";
}

// "gemm 9, winograd(4) 5, library/cudnn 2": by how many tasks have such a best, the most frequent first. Views tell kernels
// of ours apart, names of sketches the libraries.
std::string WinnersText(const TuneReport& report) {
  std::map<std::string, int> count;
  for (const TaskReport& task : report.tasks)
    if (task.best_us.has_value()) ++count[task.view == "library" ? task.sketch : task.view];
  std::vector<std::pair<std::string, int>> sorted(count.begin(), count.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return absl::StrJoin(sorted, ", ", [](std::string* out, const auto& one) { absl::StrAppend(out, one.first, " ", one.second); });
}

void PrintText(std::ostream& out, const TuneReport& report) {
  TextTable table({{"id", true}, {"task"}, {"weight", true}, {"trials", true}, {"default us", true}, {"best us", true},
                   {"GFLOP/s", true}, {"share", true}, {"sketch of the best"}});
  for (const TaskReport& task : report.tasks) {
    if (!task.selected && task.trials == 0) continue;
    const bool share = task.best_us.has_value() && report.estimated_us.has_value();
    table.AddRow({absl::StrCat(task.id + 1), task.name, absl::StrFormat("%g", task.weight), absl::StrCat(task.trials),
                  Digits(task.default_us.value_or(0)), Digits(task.best_us.value_or(0)), Digits(task.gflops.value_or(0)),
                  share ? absl::StrFormat("%.1f%%", 100 * task.weight * *task.best_us / *report.estimated_us) : "-",
                  task.best_us.has_value() && !task.verified ? task.sketch + " (not verified)" : task.sketch});
  }
  out << "\n" << table.ToString() << "\n";
  if (const std::string winners = WinnersText(report); !winners.empty()) out << "alternatives that won: " << winners << "\n";
  out << "estimated total " << Duration(report.estimated_us.value_or(0) * 1e-6);
  if (report.estimated_default_us.has_value()) out << ", with default schedules " << Duration(*report.estimated_default_us * 1e-6);
  out << "\n" << Count(report.measured, "trial") << " in " << Duration(report.seconds) << " (" << Digits(report.trials_per_s)
      << "/s), " << report.trials << " in the history, of these " << report.failed << " failed; "
      << report.stages.candidates << " candidates searched (" << Digits(report.stages.candidates_per_s) << "/s)\n";
  if (!report.stopped.empty()) out << "stopped: " << report.stopped << "\n";
}

TunerOptions OptionsFor(const TuneFlags& flags, const ResolvedTarget& resolved, const Session& session) {
  TunerOptions options;
  options.target = resolved.target;
  options.facts = resolved.facts;
  options.trials = flags.trial_limit().value_or(kUnlimitedTrials);
  options.seconds = flags.seconds;
  options.seed = static_cast<uint64_t>(flags.seed);
  options.trials_per_round = static_cast<int>(flags.trials_per_round);
  options.measure.repeat = static_cast<int>(flags.repeat);
  options.measure.number = flags.number;
  options.measure.min_repeat_ms = flags.min_repeat_ms;
  options.measure.build_timeout_s = flags.build_timeout;
  options.measure.run_timeout_s = flags.run_timeout;
  options.measure.race = !flags.no_race;
  options.measure.flush_l2 = flags.flush_l2;
  options.objective = flags.objective;
  options.early_stop = flags.early_stop < 1 ? flags.early_stop : 0;
  options.patience = flags.early_stop < 1 ? 0 : static_cast<int64_t>(std::min(flags.early_stop, 1e15));
  options.model_path = flags.history + ".model";
  options.command_line = session.command_line;
  options.host = HostName();
  options.version = kVersion;
  return options;
}

absl::Status RunTune(const TuneFlags& flags, Session& session) {
  ASSIGN_OR_RETURN(const LoadedModel loaded, LoadAndPartition(flags.model));
  const Partition& partition = loaded.partition;
  const std::string network = NetworkName(flags.model.model);
  ASSIGN_OR_RETURN(const ResolvedTarget resolved, ResolveMeasurableTarget(flags.target));
  TunerOptions options = OptionsFor(flags, resolved, session);
  // Only the spaces are without what is missing: records keep the target as it was given.
  std::vector<std::string> missing;
  const Target searched = WithoutMissingLibraries(resolved.target, CheckLibrary, &missing);
  options.make_space = [searched](const ComputeDag& dag, const Target&, const DeviceFacts& facts) {
    return TaskSpace::Create(dag, searched, facts);
  };
  for (const std::string& warning : missing) Warn(session, warning);
  ASSIGN_OR_RETURN(options.only, ParseTasks(flags.tasks, partition.tasks.size()));
  std::vector<TuningTask> tasks = TuningTasks(network, partition);
  RETURN_IF_ERROR(CheckObjective(flags.objective, tasks));  // before a history is made

  ASSIGN_OR_RETURN(const std::unique_ptr<History> history, History::Open(flags.history, HistoryMode::kCreate));
  RETURN_IF_ERROR(history->LinkNetwork(NetworkLinks(network, partition)));
  std::atomic<bool> stop{false};
  InterruptGuard interrupt(&stop);
  ASSIGN_OR_RETURN(const std::unique_ptr<ClientMeasurer> measurer,
                   StartMeasurer({resolved.target, resolved.device, static_cast<int>(flags.builders)}));

  std::ostream& shown_on = flags.json ? session.err : session.out;
  const bool live = flags.json ? session.environment.err_is_terminal : session.environment.out_is_terminal;
  ProgressView view(shown_on, live, session.environment.terminal_size);
  TuneListener listener(flags, partition, view, session);
  ASSIGN_OR_RETURN(const std::unique_ptr<Tuner> tuner,
                   Tuner::Create(std::move(tasks), std::move(options), measurer.get(), history.get(), &listener));
  ASSIGN_OR_RETURN(const TuneReport report, tuner->Run(&stop));
  flags.json ? PrintJson(session.out, report, partition, measurer->client()) : PrintText(session.out, report);
  if (interrupt.requested()) {
    return absl::CancelledError(absl::StrCat("stopped by Ctrl-C after ", Count(report.measured, "trial"),
                                             "; all are in ", flags.history, ", the same command goes on from there"));
  }
  return absl::OkStatus();
}

void AddLimits(CLI::App* command, TuneFlags* flags) {
  AddWhole(command, "--trials", &flags->trials, 1, kMost,
           absl::StrCat("Measurements in all, those in the history included (default ", kDefaultTrials,
                        ", or no limit with --seconds)"));
  AddNumber(command, "--seconds", &flags->seconds, 0, "Time to tune, verification of the bests included; the limit that comes first ends the run");
  command->add_option("--tasks", flags->tasks, "Only these tasks, by id: 1,4")->type_name("IDS");
  AddNumber(command, "--early-stop", &flags->early_stop, 0,
            "End when little is left to gain: a share such as 0.01 (expected of the next tenth of the trials), or a number "
            "of trials without a gain");
  command->add_option("--objective", flags->objective,
                      "What to make small: sum (default), or targets:NETWORK=5ms: no gain below a network's target")
      ->type_name("TEXT");
  AddWhole(command, "--seed", &flags->seed, 0, kMost, "Seed of the search (default 0)");
  AddWhole(command, "--trials-per-round", &flags->trials_per_round, 1, 4096, "Trials of a task between choices (default 64)");
}

void AddMeasuring(CLI::App* command, TuneFlags* flags) {
  AddWhole(command, "--repeat", &flags->repeat, 1, 1000, "Samples of a trial (default 3)");
  AddWhole(command, "--number", &flags->number, 1, 1'000'000, "Launches of a sample, at least (default 1)");
  AddNumber(command, "--min-repeat-ms", &flags->min_repeat_ms, 0, "Length of a sample in ms, at least (default 100)");
  AddNumber(command, "--build-timeout", &flags->build_timeout, 0, "Seconds to compile a candidate (default 30)");
  AddNumber(command, "--run-timeout", &flags->run_timeout, 0, "Seconds to measure a candidate (default 10)");
  AddWhole(command, "--builders", &flags->builders, 1, 1024, "Processes that compile (default: as the machine allows)");
  command->add_flag("--no-race", flags->no_race, "Measure slow candidates as long as fast ones");
  command->add_flag("--flush-l2", flags->flush_l2, "Start each launch with a cold last-level cache");
}

}  // namespace

void AddTune(CLI::App& app, CommandBody& chosen) {
  CLI::App* command = app.add_subcommand("tune", "Search fast schedules for a network and store them in a history");
  command->footer(
      "Ctrl-C finishes what is being measured, keeps everything and exits with 130; a second one stops at once. With "
      "-libs=cudnn,cublas in the target, calls of these libraries compete with generated kernels; one that is not on this "
      "machine is left out with a warning.");
  auto flags = std::make_shared<TuneFlags>();
  AddModelFlags(command, &flags->model);
  AddTargetFlag(command, &flags->target);
  command->add_option("--history", flags->history, "History to add to; made when there is none")->required()->type_name("FILE");
  AddLimits(command, flags.get());
  AddMeasuring(command, flags.get());
  command->add_flag("--json", flags->json, "One JSON document on stdout; progress goes to stderr");
  command->callback([&chosen, flags] { chosen = [flags](Session& session) { return RunTune(*flags, session); }; });
}

}  // namespace diapason
