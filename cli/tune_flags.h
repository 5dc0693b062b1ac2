// The flags that `tune` and `submit` have in common.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "cli/launch_flags.h"
#include "cli/service_flags.h"
#include "diapason/tuner.h"

namespace diapason {

struct TuneFlags {
  ModelFlags model;
  std::string target, tasks, device, labels;
  int64_t trials = 0;  // 0: not given
  double seconds = 0;  // 0: not given
  int64_t seed = 0, repeat = 3, number = 1, trials_per_round = 64, priority = 0;
  double min_repeat_ms = -1;  // below 0: not given
  double build_timeout = 30, run_timeout = 10, early_stop = 0;
  std::vector<std::string> weights;  // a share of a fleet, and SYMBOL=SIZE:WEIGHT
  std::string objective = "sum";
  bool no_race = false, deterministic = false, cold_start = false, no_shipped = false, no_check = false;

  // Of `tune` alone.
  ImportFlags import;
  std::string history, tracker, without;
  int64_t builders = 0;
  double wait = -1;  // below 0: not given
  bool json = false;
  std::string sandbox;  // empty: not given
  std::vector<std::string> keep_environment;
  SecurityFlags security;
  LaunchFlags launch;
};

// Model, target, limits, measuring and the choice of devices.
void AddTuneFlags(CLI::App* command, TuneFlags* flags);
// Without what `tune` alone has. InvalidArgument names the flag that is malformed.
absl::StatusOr<api::TuneOptions> TuneOptionsOf(const TuneFlags& flags);

}  // namespace diapason
