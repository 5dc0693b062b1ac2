#include <atomic>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/check.h"
#include "api/endpoint.h"
#include "api/import.h"
#include "api/launch.h"
#include "api/spread_meter.h"
#include "api/stop_relay.h"
#include "api/tune_job.h"
#include "api/tune_spec.h"
#include "base/check.h"
#include "db/history_name.h"
#include "diapason/tuner.h"
#include "worker/client.h"

namespace diapason::api {
namespace {

TaskProgress ProgressOf(const TaskReport& report, const Partition& partition) {
  TaskProgress task;
  task.id = report.id + 1;
  task.name = report.name;
  task.workload = partition.tasks[report.id].workload_key;
  task.count = report.weight;
  task.trials = report.trials;
  task.failed = report.failed;
  task.best_us = report.best_us;
  task.fallback_us = report.fallback_us;
  task.gflops_per_s = report.gflops_per_s;
  task.expected_us = report.expected_us;
  task.verified = report.verified;
  if (report.best_record > 0) task.record = report.best_record;
  task.algorithm = report.rewrite;
  task.sketch = report.sketch;
  task.tuned = report.selected;
  return task;
}

StageTimes StagesOf(const StageReport& report) {
  StageTimes stages;
  stages.search_s = report.search_s;
  stages.train_s = report.train_s;
  stages.build_s = report.build_s;
  stages.run_s = report.run_s;
  stages.rounds = report.rounds;
  stages.trainings = report.trainings;
  stages.verifications = report.verifications;
  stages.confirmations = report.confirmations;
  stages.candidates_per_s = report.candidates_per_s;
  return stages;
}

Progress ProgressOf(const TuneReport& report, const TuneSpec& spec, const Partition& partition) {
  Progress progress;
  progress.elapsed_s = report.seconds;
  progress.trials = report.trials;
  progress.measured = report.measured;
  progress.failed = report.failed;
  progress.trials_per_s = report.trials_per_s;
  progress.trial_limit = spec.trial_limit();
  if (spec.seconds > 0) progress.time_limit_s = spec.seconds;
  progress.time_left_s = report.seconds_left;
  progress.estimated_us = report.estimated_us;
  progress.estimated_fallback_us = report.estimated_fallback_us;
  progress.tasks_us = report.tasks_us;
  progress.expected_us = report.expected_us;
  progress.expected_fallback_us = report.expected_fallback_us;
  progress.candidates = report.stages.candidates;
  progress.errors = report.errors;
  progress.stages = StagesOf(report.stages);
  for (const TaskReport& task : report.tasks) progress.tasks.push_back(ProgressOf(task, partition));
  return progress;
}

// What the tuner's reports leave to those who listen.
struct Heard {
  int64_t built = 0, run = 0;
  int task = 0;
  SpreadMeter spread;

  void AddTo(Progress& progress) const {
    progress.built = built;
    progress.run = run;
    progress.task = task;
  }
};

class Listener : public ProgressListener {
 public:
  Listener(const TuneOptions& options, const TuneSpec& spec, const Partition& partition, Heard& heard)
      : options_(options), spec_(spec), partition_(partition), heard_(heard) {}
  void OnRound(int task, int, const TuneReport& report) override {
    heard_.task = task + 1;
    Tell(report);
  }
  void OnRecord(int, const TuningRecord& record, bool, const TuneReport&) override {
    const MeasureError* error = record.error();
    ++heard_.built;
    if (error == nullptr || error->stage >= MeasureStage::kLoad) ++heard_.run;
    if (error == nullptr) heard_.spread.Add(*record.timing());
  }
  void OnTick(const TuneReport& report) override { Tell(report); }
  void OnFinish(const TuneReport& report) override { Tell(report, /*ended=*/true); }
  void OnWarning(const std::string& text) override { Warn(options_.hooks, text); }
  void OnVerified(int task, int64_t record, bool ok, const std::string& text) override {
    if (!ok)
      Warn(options_.hooks, absl::StrCat("record ", record, " of task ", task + 1, " (", partition_.tasks[task].name,
                                        ") computes a wrong result and is not used: ", text));
  }

 private:
  void Tell(const TuneReport& report, bool ended = false) {
    if (!options_.progress) return;
    Progress progress = ProgressOf(report, spec_, partition_);
    heard_.AddTo(progress);
    progress.ended = ended;
    options_.progress(progress);
  }

  const TuneOptions& options_;
  const TuneSpec& spec_;
  const Partition& partition_;
  Heard& heard_;
};

std::vector<ChoicePoint> ChoicePointsOf(const TuneWork& work, const TuneReport& report) {
  std::vector<ChoicePoint> points;
  for (size_t b = 0; b < work.choice_points.size(); ++b) {
    ChoicePoint& point = points.emplace_back();
    point.name = work.choice_points[b].name;
    for (const int tried : work.tried[b]) {
      const auto& tuned = work.choice_points[b].alternatives[tried];
      ChoicePoint::Alternative& alternative = point.alternatives.emplace_back();
      alternative.name = tuned.name;
      for (const auto& [task, times] : tuned.tasks) alternative.tasks.push_back(task + 1);
    }
    point.best = point.alternatives[report.alternatives[b]].name;
  }
  return points;
}

// Nothing when they cannot tell.
std::optional<WorkerLoad> LoadOf(MeasureClient& client) {
  const absl::StatusOr<MeasureStatistics> s = client.Statistics();
  if (!s.ok()) return std::nullopt;
  WorkerLoad load;
  load.builders = s->builders;
  load.devices = s->devices;
  load.builds = s->builds;
  load.runs = s->runs;
  load.runs_stopped_early = s->stopped_early;
  load.builder_restarts = s->builder_restarts;
  load.runner_restarts = s->runner_restarts;
  load.builds_per_s = s->builds_per_second();
  load.runs_per_s = s->runs_per_second();
  load.builder_utilisation = s->builder_utilisation();
  load.runner_utilisation = s->runner_utilisation();
  const MeasureStatistics::RunSeconds& run = s->run_seconds;
  load.run_phases = {{"load_s", run.load},
                     {"fill_s", run.fill},
                     {"first_run_s", run.first_run},
                     {"timing_s", run.timing},
                     {"stopped_early_s", run.stopped_early},
                     {"check_s", run.check},
                     {"verify_s", run.verify}};
  return load;
}

// What makes another run of the same call go on from this one: all but how long it may take.
std::string NameOf(const TuneOptions& options, const TuneSpec& spec) {
  const Model& model = options.model;
  std::string name = absl::StrCat("api tune ", NetworkName(model.source), " --target ", spec.target, " --layout ",
                                  model.layout, " --dtype ", model.dtype, " --seed ", options.seed);
  if (model.batch > 0) absl::StrAppend(&name, " --batch ", model.batch);
  for (const auto& [input, shape] : model.input_shapes)
    absl::StrAppend(&name, " --input-shape ", input, "=", absl::StrJoin(shape, "x"));
  for (const std::string& dim : model.dims) absl::StrAppend(&name, " --dim ", dim);
  for (const auto& [option, value] : model.options) absl::StrAppend(&name, " --set ", option, "=", value);
  if (!spec.tasks.empty()) absl::StrAppend(&name, " --tasks ", spec.tasks);
  if (spec.objective != "sum") absl::StrAppend(&name, " --objective ", spec.objective);
  for (const std::string& weight : options.size_weights) absl::StrAppend(&name, " --weight ", weight);
  if (!options.without.empty()) absl::StrAppend(&name, " --without ", absl::StrJoin(options.without, ","));
  return name;
}

absl::StatusOr<Fleet> StartHere(const TuneOptions& options) {
  Fleet here;
  ASSIGN_OR_RETURN(here.target, ResolveMeasurableTarget(options.target));
  MeasurerOptions measurer{here.target.target, here.target.device, options.builders, *ParseSandboxMode(options.sandbox),
                           options.keep_environment};
  measurer.program = Program();
  ASSIGN_OR_RETURN(here.measurer, StartMeasurer(measurer));
  return here;
}

absl::StatusOr<Fleet> ConnectTo(const FleetRequest& request, const TuneSpec& spec, const TuneWork& work,
                                const std::atomic<bool>* stop) {
  FleetOptions options;
  options.tracker = request.tracker.address;
  ASSIGN_OR_RETURN(options.target, Target::Parse(spec.target));
  options.device_model = request.device;
  options.client.name = absl::StrCat("tune ", work.network);
  ASSIGN_OR_RETURN(options.client.credentials, CredentialsFor("--tracker", request.tracker));
  options.client.priority = request.priority;
  options.client.weight = request.weight;
  options.client.labels = {request.labels.begin(), request.labels.end()};
  options.wait_seconds = request.wait_seconds;
  options.stop = stop;
  return ConnectFleet(options);
}

// The workers of a run, which ends when all of them are lost.
class WorkersOfRun {
 public:
  explicit WorkersOfRun(const TuneOptions& options) : options_(options), request_(options.fleet.launch) {
    if (request_.given()) stop_.emplace(options.hooks.stop);
  }
  absl::Status Start() {
    if (!request_.given()) return absl::OkStatus();
    WorkersPurpose purpose;
    purpose.tracker = purpose.status = options_.fleet.tracker.address;
    ASSIGN_OR_RETURN(purpose.credentials, CredentialsFor("--tracker", options_.fleet.tracker));
    purpose.owner = OwnerOfHistory(options_.history);
    purpose.used_up = [this] {
      used_up_ = true;
      stop_->Raise();
    };
    ASSIGN_OR_RETURN(pool_, StartWorkers(request_, std::move(purpose)));
    return absl::OkStatus();
  }
  // Becomes true when the run is to stop, for whichever reason; null: never.
  const std::atomic<bool>* stop() const { return stop_.has_value() ? stop_->flag() : options_.hooks.stop; }
  absl::Status status() const {
    if (!used_up_) return absl::OkStatus();
    const absl::Status lost = NoWorkerLeft(request_);
    return absl::Status(lost.code(),
                        absl::StrCat(lost.message(), ", all trials are in ", ::diapason::HistoryName(options_.history),
                                     ", the same command resumes there"));
  }

 private:
  const TuneOptions& options_;
  const LaunchRequest& request_;
  std::optional<StopRelay> stop_;
  std::atomic<bool> used_up_{false};
  std::unique_ptr<WorkerPool> pool_;  // gone before what its thread uses
};

absl::StatusOr<Fleet> Start(const TuneOptions& options, const TuneJob& job, const TuneWork& work,
                            WorkersOfRun& workers) {
  if (options.on_start) RETURN_IF_ERROR(options.on_start());
  if (options.fleet.tracker.address.empty()) return StartHere(options);
  RETURN_IF_ERROR(workers.Start());
  return ConnectTo(options.fleet, job.spec, work, job.stop);
}

// Before a process is started or a history is made.
absl::Status CheckDevices(const TuneOptions& options) {
  if (options.fleet.tracker.address.empty()) {
    if (options.fleet.launch.given())
      return absl::InvalidArgumentError("--launch starts workers of a fleet; name its tracker with --tracker");
    return ResolveMeasurableTarget(options.target).status();
  }
  RETURN_IF_ERROR(CheckOptions(options.fleet.launch));
  return CredentialsFor("--tracker", options.fleet.tracker).status();
}

// What the network took at the end is the best estimate of it, and corrects those of other schedules.
void EstimateAsMeasured(TuneResult& result) {
  Progress& p = result.progress;
  if (result.checks.size() != 1 || !result.checks.front().latency_us.has_value() || p.estimated_us.value_or(0) <= 0)
    return;
  const double correction = *result.checks.front().latency_us / *p.estimated_us;
  for (std::optional<double>* us : {&p.estimated_us, &p.estimated_fallback_us})
    if (us->has_value()) **us *= correction;
  p.expected_us *= correction;
  p.expected_fallback_us *= correction;
}

TuneResult ResultOf(const TuneOptions& options, const TuneJob& job, const Tuned& tuned, const Heard& heard) {
  TuneResult result;
  result.progress = ProgressOf(tuned.report, job.spec, tuned.work.partition);
  heard.AddTo(result.progress);
  result.progress.ended = true;
  result.stop_reason = tuned.report.stopped;
  result.cancelled = options.hooks.stop != nullptr && *options.hooks.stop;
  for (const NonDefaultFusion& won : NonDefaultFusions(tuned.work, tuned.report))
    result.fusion_choices.push_back({won.choice_point, won.alternative});
  result.choice_points = ChoicePointsOf(tuned.work, tuned.report);
  result.checks = ChecksOf(tuned.checks);
  EstimateAsMeasured(result);
  if (options.count_workers) result.workers = LoadOf(tuned.fleet.measurer->client());
  result.spread = heard.spread.Typical();
  return result;
}

}  // namespace

absl::StatusOr<TuneResult> Tune(const TuneOptions& given) {
  TuneOptions options = given;
  if (options.history.empty())
    return absl::InvalidArgumentError("there is no history to add to; name a file for it, which is made if need be");
  RETURN_IF_ERROR(MoveTypeToTarget(options.model, options.target));
  TuneJob job;
  ASSIGN_OR_RETURN(job.spec, SpecOf(options));
  RETURN_IF_ERROR(CheckDevices(options));
  job.import = LimitsOf(options.model);
  job.history = options.history;
  job.without = options.without;
  job.name = options.name.empty() ? NameOf(options, job.spec) : options.name;
  WorkersOfRun workers(options);
  job.stop = workers.stop();
  job.here = options.fleet.tracker.address.empty();
  Heard heard;
  job.measure = [&](const TuneWork& work) { return Start(options, job, work, workers); };
  job.listen = [&](const TuneWork& work) {
    return std::make_unique<Listener>(options, job.spec, work.partition, heard);
  };
  job.warn = [&](const std::string& text) { Warn(options.hooks, text); };
  const absl::StatusOr<Tuned> tuned = RunTuneJob(job);
  const absl::Status left = workers.status();
  if (!tuned.ok()) return left.ok() ? tuned.status() : left;
  TuneResult result = ResultOf(options, job, *tuned, heard);
  if (!result.cancelled) result.check_status = left.ok() ? Verdict(*tuned) : left;
  return result;
}

}  // namespace diapason::api
