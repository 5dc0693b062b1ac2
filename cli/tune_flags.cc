#include "cli/tune_flags.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "cli/renamed.h"

namespace diapason {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr char kFleet[] = "Measuring on a fleet";

void AddLimits(CLI::App* command, TuneFlags* flags) {
  AddWhole(command, "--trials", &flags->trials, {1, kMost},
           absl::StrCat("Measurements in all, those in the history included (default ", api::kDefaultTrials,
                        ", or no limit with --seconds)"));
  AddNumber(command, "--seconds", &flags->seconds, 0,
            "Time limit, including verification; tuning stops at --trials or --seconds, whichever comes first");
  command->add_option("--tasks", flags->tasks, "Tune only these tasks, by id: 1,4")->type_name("IDS");
  AddNumber(command, "--early-stop", &flags->early_stop, 0,
            "Stop early: a fraction such as 0.01 is the least improvement expected of the next tenth of the trials; a "
            "whole number is the number of trials without improvement");
  command
      ->add_option("--objective", flags->objective,
                   "Quantity to minimize: sum (estimated latency, the default), or targets:NETWORK=5ms, which stops "
                   "tuning a network once its estimated latency is below this")
      ->type_name("TEXT");
  AddWhole(command, "--seed", &flags->seed, {0, kMost}, "Seed of the search (default 0)");
  AddWhole(command, "--trials-per-round", &flags->trials_per_round, {1, 4096},
           "Trials of one task before the next task is chosen (default 64)");
  command->add_flag(
      "--deterministic", flags->deterministic,
      "Run one round after the other, so that the same seed and measurements give the same proposals; slower");
  command->add_flag(
      "--no-check", flags->no_check,
      "Do not check the assembled network at the end; the check takes seconds to minutes beyond --seconds");
  command->add_flag("--cold-start", flags->cold_start,
                    "Do not start from the best configurations of similar tasks of the network and the history");
  command->add_flag("--no-shipped-records", flags->no_shipped,
                    "Do not start from the records that come with Diapason (`diapason records`)");
}

void AddMeasuring(CLI::App* command, TuneFlags* flags) {
  AddWhole(command, "--repeat", &flags->repeat, {1, 1000}, "Samples per trial (default 3)");
  AddWhole(command, "--number", &flags->number, {1, 1'000'000}, "Least number of launches per sample (default 1)");
  AddNumber(command, "--min-repeat-ms", &flags->min_repeat_ms, 0,
            "Least length of a sample in ms (default 20; 100 with --no-race); on cuda, samples of candidates that are "
            "measured in turns at the end may be shorter, of about 1,000 runs");
  AddNumber(command, "--build-timeout", &flags->build_timeout, 0, "Seconds to compile a candidate (default 30)");
  AddNumber(command, "--run-timeout", &flags->run_timeout, 0, "Seconds to measure a candidate (default 10)");
  command->add_flag("--no-race", flags->no_race,
                    "Measure all candidates in full; by default clearly slower ones are stopped early");
  command->add_flag_callback(kFlushFlag, [flags] { flags->target += " -caches=flushed"; })->group("");
}

void AddDevices(CLI::App* command, TuneFlags* flags) {
  command->add_option("--device", flags->device, "Use only devices of this model (`diapason fleet status` lists them)")
      ->type_name("NAME")
      ->group(kFleet);
  command->add_option("--selector", flags->labels, "Use only devices of workers with these labels")
      ->type_name("K=V,...")
      ->group(kFleet);
  AddWhole(command, "--priority", &flags->priority, {-1000, 1000},
           "Tuners and jobs of a higher priority are measured first (default 0)")
      ->group(kFleet);
  command
      ->add_option(
          "--weight", flags->weights,
          "Share of the devices among tuners and jobs of the same priority (default 1); or, as SYMBOL=SIZE:WEIGHT "
          "(seq=128:5), weight of a size of --dim in the allocation of trials; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->type_name("X")
      ->group(kFleet);
}

}  // namespace

void AddTuneFlags(CLI::App* command, TuneFlags* flags) {
  AddModelFlags(command, &flags->model);
  AddTargetFlag(command, &flags->target, &flags->model);
  AddLimits(command, flags);
  AddMeasuring(command, flags);
  AddDevices(command, flags);
}

namespace {

// "1,4". Whether the network has such tasks is found out when it was read.
absl::StatusOr<std::vector<int>> ParseIds(const std::string& text) {
  std::vector<int> ids;
  for (const std::string& part : static_cast<std::vector<std::string>>(absl::StrSplit(text, ',', absl::SkipEmpty()))) {
    int id = 0;
    if (!absl::SimpleAtoi(part, &id))
      return absl::InvalidArgumentError(absl::StrCat(
          "--tasks ", text, " is not understood; give ids as `diapason tasks` shows them, for example --tasks 1,4"));
    ids.push_back(id);
  }
  return ids;
}

// Of a fleet, or of a size of --dim.
absl::Status TakeWeight(const std::string& text, api::TuneOptions& options) {
  if (text.find('=') != std::string::npos) {
    options.size_weights.push_back(text);
    return absl::OkStatus();
  }
  double& weight = options.fleet.weight;
  if (absl::SimpleAtod(text, &weight) && std::isfinite(weight) && weight > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--weight ", text, " is not understood; give a number above 0, or SYMBOL=SIZE:WEIGHT, for example seq=128:5"));
}

}  // namespace

absl::StatusOr<api::TuneOptions> TuneOptionsOf(const TuneFlags& flags) {
  api::TuneOptions options;
  ASSIGN_OR_RETURN(options.model, ModelOf(flags.model, ImportFlags(), ""));
  for (const std::string& weight : flags.weights) RETURN_IF_ERROR(TakeWeight(weight, options));
  options.target = flags.target;
  options.trials = flags.trials;
  options.seconds = flags.seconds;
  ASSIGN_OR_RETURN(options.tasks, ParseIds(flags.tasks));
  options.seed = static_cast<uint64_t>(flags.seed);
  options.trials_per_round = flags.trials_per_round;
  options.early_stop = flags.early_stop;
  options.objective = flags.objective;
  options.repeat = static_cast<int>(flags.repeat);
  options.number = flags.number;
  options.min_repeat_ms = flags.min_repeat_ms;
  options.build_timeout_seconds = flags.build_timeout;
  options.run_timeout_seconds = flags.run_timeout;
  options.race = !flags.no_race;
  options.fleet.device = flags.device;
  ASSIGN_OR_RETURN(const auto labels, ParsePairs("--selector", flags.labels));
  options.fleet.labels = {labels.begin(), labels.end()};
  options.fleet.priority = static_cast<int>(flags.priority);
  options.deterministic = flags.deterministic;
  options.cold_start = flags.cold_start;
  options.shipped_records = !flags.no_shipped;
  options.check = !flags.no_check;
  return options;
}

}  // namespace diapason
