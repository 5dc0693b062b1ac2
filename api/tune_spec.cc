#include "api/tune_spec.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/import.h"
#include "api/tune_job.h"
#include "base/check.h"
#include "worker/process/sandbox.h"

namespace diapason::api {
namespace {

static_assert(kDefaultTrials == ::diapason::kDefaultTrials);

absl::Status CheckValues(const TuneOptions& options) {
  const auto refuse = [](const std::string& what, const auto& value, const std::string& wanted) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, "; give ", wanted));
  };
  if (options.trials < 0) return refuse("the number of trials", options.trials, "0 for the default, or more");
  if (!(options.seconds >= 0)) return refuse("the time limit", options.seconds, "0 for none, or seconds");
  if (!(options.early_stop >= 0))
    return refuse("early_stop", options.early_stop, "0 for never, a share, or a number of trials");
  if (options.repeat < 1 || options.repeat > 1000) return refuse("repeat", options.repeat, "a number from 1 to 1000");
  if (options.number < 1) return refuse("number", options.number, "a number of at least 1");
  if (options.trials_per_round < 1 || options.trials_per_round > 4096)
    return refuse("trials_per_round", options.trials_per_round, "a number from 1 to 4096");
  if (!(options.build_timeout_seconds > 0))
    return refuse("the build timeout", options.build_timeout_seconds, "seconds above 0");
  if (!(options.run_timeout_seconds > 0))
    return refuse("the run timeout", options.run_timeout_seconds, "seconds above 0");
  if (options.builders < 0 || options.builders > 1024)
    return refuse("builders", options.builders, "a number from 0 to 1024");
  if (!ParseSandboxMode(options.sandbox).has_value())
    return refuse("sandbox", absl::StrCat("'", options.sandbox, "'"), "auto, on or off");
  if (!(options.fleet.weight > 0)) return refuse("the weight", options.fleet.weight, "a number above 0");
  return CheckWithout(options.without);
}

}  // namespace

absl::StatusOr<TuneSpec> SpecOf(const TuneOptions& options) {
  RETURN_IF_ERROR(CheckValues(options));
  TuneSpec spec;
  spec.model = options.model.source;
  ASSIGN_OR_RETURN(spec.options, ModelOptionsOf(options.model));
  ASSIGN_OR_RETURN(spec.dims, DimsOf(options.model));
  for (const std::string& weight : options.size_weights) RETURN_IF_ERROR(AddDimWeight(weight, spec.dims));
  RETURN_IF_ERROR(CheckDimChoices(spec.dims));
  ASSIGN_OR_RETURN(const Target target, Target::Parse(options.target));
  spec.target = target.ToString();
  spec.trials = options.trials;
  spec.seconds = options.seconds;
  spec.tasks = absl::StrJoin(options.tasks, ",");
  spec.seed = options.seed;
  spec.trials_per_round = options.trials_per_round;
  spec.objective = options.objective;
  spec.early_stop = options.early_stop;
  spec.measure.repeat = options.repeat;
  spec.measure.number = options.number;
  spec.measure.race = options.race;
  spec.measure.min_repeat_ms = options.min_repeat_ms >= 0 ? options.min_repeat_ms : DefaultSampleMs(options.race);
  spec.measure.build_timeout_s = options.build_timeout_seconds;
  spec.measure.run_timeout_s = options.run_timeout_seconds;
  spec.device_model = options.fleet.device;
  spec.labels = options.fleet.labels;
  spec.priority = options.fleet.priority;
  spec.weight = options.fleet.weight;
  spec.deterministic = options.deterministic;
  spec.cold_start = options.cold_start;
  spec.no_shipped_records = !options.shipped_records;
  spec.no_check = !options.check;
  return spec;
}

absl::Status CheckOptions(const TuneOptions& options) { return SpecOf(options).status(); }

}  // namespace diapason::api
