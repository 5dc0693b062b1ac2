// A tuning run from the model to the check of the network: what Tune (diapason/tuner.h) does,
// wherever is measured.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/progress.h"
#include "service/import_model.h"
#include "service/measurer.h"
#include "service/measuring_judge.h"
#include "service/tune_spec.h"

namespace diapason::api {

struct TuneJob {
  TuneSpec spec;
  ::diapason::ImportLimits import;
  std::string history;
  std::vector<std::string> without;  // algorithms to leave out of the search
  // What the history knows the run by: a later one of the same name resumes it.
  std::string name;
  const std::atomic<bool>* stop = nullptr;
  // The devices are this host's: libraries that it lacks are left out of the search.
  bool here = true;
  // Gets the devices. Called once, when the model was read and the history is open.
  std::function<absl::StatusOr<Fleet>(const TuneWork& work)> measure;
  // Who observes the run; outlives it. Called once, before tuning.
  std::function<std::unique_ptr<ProgressListener>(const TuneWork& work)> listen;
  std::function<void(const std::string&)> warn;  // never empty
};

struct Tuned {
  TuneWork work;  // without its tasks
  TuneReport report;
  std::vector<PlanCheck> checks;  // empty: there was none
  absl::Status checked;           // why there was none, unless it was not wanted
  Fleet fleet;
};

// OK to measure with these algorithms left out: names of kAlgorithms.
absl::Status CheckWithout(const std::vector<std::string>& names);

// Errors before tuning began are returned, and those that ended it; what was measured is in the history in each case.
// What the check of the network said, or that there could be none, is in the result.
absl::StatusOr<Tuned> RunTuneJob(const TuneJob& job);

// OK, or why a tuned network is not right: DataLoss, or the status of the check with what to do.
absl::Status Verdict(const Tuned& tuned);

}  // namespace diapason::api
