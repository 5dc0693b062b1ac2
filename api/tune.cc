#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/check.h"
#include "api/import.h"
#include "api/tune_job.h"
#include "base/check.h"
#include "diapason/tuner.h"

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
  task.verified = report.verified;
  if (report.best_record > 0) task.record = report.best_record;
  task.sketch = report.sketch;
  task.tuned = report.selected;
  return task;
}

Progress ProgressOf(const TuneReport& report, const TuneSpec& spec, const Partition& partition) {
  Progress progress;
  progress.elapsed_s = report.seconds;
  progress.trials = report.trials;
  progress.measured = report.measured;
  progress.failed = report.failed;
  progress.trial_limit = spec.trial_limit();
  if (spec.seconds > 0) progress.time_limit_s = spec.seconds;
  progress.time_left_s = report.seconds_left;
  progress.estimated_us = report.estimated_us;
  progress.estimated_fallback_us = report.estimated_fallback_us;
  progress.candidates = report.stages.candidates;
  progress.errors = report.errors;
  for (const TaskReport& task : report.tasks) progress.tasks.push_back(ProgressOf(task, partition));
  return progress;
}

class Listener : public ProgressListener {
 public:
  Listener(const TuneOptions& options, const TuneSpec& spec, const Partition& partition)
      : options_(options), spec_(spec), partition_(partition) {}
  void OnTick(const TuneReport& report) override { Tell(report); }
  void OnFinish(const TuneReport& report) override { Tell(report); }
  void OnWarning(const std::string& text) override { Warn(options_.hooks, text); }
  void OnVerified(int task, int64_t record, bool ok, const std::string& text) override {
    if (!ok)
      Warn(options_.hooks, absl::StrCat("record ", record, " of task ", task + 1, " (", partition_.tasks[task].name,
                                        ") computes a wrong result and is not used: ", text));
  }

 private:
  void Tell(const TuneReport& report) {
    if (options_.progress) options_.progress(ProgressOf(report, spec_, partition_));
  }

  const TuneOptions& options_;
  const TuneSpec& spec_;
  const Partition& partition_;
};

absl::Status CheckOptions(const TuneOptions& options) {
  const auto refuse = [](const std::string& what, const auto& value, const std::string& wanted) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, "; give ", wanted));
  };
  if (options.history.empty())
    return absl::InvalidArgumentError("there is no history to add to; name a file for it, which is made if need be");
  if (options.trials < 0) return refuse("the number of trials", options.trials, "0 for the default, or more");
  if (!(options.seconds >= 0)) return refuse("the time limit", options.seconds, "0 for none, or seconds");
  if (!(options.early_stop >= 0))
    return refuse("early_stop", options.early_stop, "0 for never, a share, or a number of trials");
  if (options.repeat < 1 || options.repeat > 1000) return refuse("repeat", options.repeat, "a number from 1 to 1000");
  if (!(options.build_timeout_seconds > 0))
    return refuse("the build timeout", options.build_timeout_seconds, "seconds above 0");
  if (!(options.run_timeout_seconds > 0))
    return refuse("the run timeout", options.run_timeout_seconds, "seconds above 0");
  if (options.builders < 0 || options.builders > 1024)
    return refuse("builders", options.builders, "a number from 0 to 1024");
  if (!ParseSandboxMode(options.sandbox).has_value())
    return refuse("sandbox", absl::StrCat("'", options.sandbox, "'"), "auto, on or off");
  return absl::OkStatus();
}

absl::StatusOr<TuneSpec> SpecOf(const TuneOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  TuneSpec spec;
  spec.model = options.model.source;
  ASSIGN_OR_RETURN(spec.options, ModelOptionsOf(options.model));
  ASSIGN_OR_RETURN(spec.dims, DimsOf(options.model));
  ASSIGN_OR_RETURN(const Target target, Target::Parse(options.target));
  spec.target = target.ToString();
  spec.trials = options.trials;
  spec.seconds = options.seconds;
  spec.tasks = absl::StrJoin(options.tasks, ",");
  spec.seed = options.seed;
  spec.early_stop = options.early_stop;
  spec.measure.repeat = options.repeat;
  spec.measure.min_repeat_ms = options.min_repeat_ms >= 0 ? options.min_repeat_ms : DefaultSampleMs(spec.measure.race);
  spec.measure.build_timeout_s = options.build_timeout_seconds;
  spec.measure.run_timeout_s = options.run_timeout_seconds;
  spec.deterministic = options.deterministic;
  spec.no_shipped_records = !options.shipped_records;
  spec.no_check = !options.check;
  return spec;
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
  return name;
}

absl::StatusOr<Fleet> StartHere(const TuneOptions& options) {
  Fleet here;
  ASSIGN_OR_RETURN(here.target, ResolveMeasurableTarget(options.target));
  MeasurerOptions measurer{
      here.target.target, here.target.device, options.builders, *ParseSandboxMode(options.sandbox), {}};
  measurer.program = Program();
  ASSIGN_OR_RETURN(here.measurer, StartMeasurer(measurer));
  return here;
}

}  // namespace

absl::StatusOr<TuneResult> Tune(const TuneOptions& given) {
  TuneOptions options = given;
  RETURN_IF_ERROR(MoveTypeToTarget(options.model, options.target));
  TuneJob job;
  ASSIGN_OR_RETURN(job.spec, SpecOf(options));
  // Before a process is started or a history is made.
  RETURN_IF_ERROR(ResolveMeasurableTarget(options.target).status());
  job.import = LimitsOf(options.model);
  job.history = options.history;
  job.name = NameOf(options, job.spec);
  job.stop = options.hooks.stop;
  job.measure = [&](const TuneWork&) { return StartHere(options); };
  job.listen = [&](const TuneWork& work) { return std::make_unique<Listener>(options, job.spec, work.partition); };
  job.warn = [&](const std::string& text) { Warn(options.hooks, text); };
  ASSIGN_OR_RETURN(const Tuned tuned, RunTuneJob(job));
  TuneResult result;
  result.progress = ProgressOf(tuned.report, job.spec, tuned.work.partition);
  result.stop_reason = tuned.report.stopped;
  result.cancelled = job.stop != nullptr && *job.stop;
  for (const NonDefaultFusion& won : NonDefaultFusions(tuned.work, tuned.report))
    result.fusion_choices.push_back({won.choice_point, won.alternative});
  result.checks = ChecksOf(tuned.checks);
  if (!result.cancelled) result.check_status = Verdict(tuned);
  return result;
}

}  // namespace diapason::api
