// A candidate in readable form, for `diapason explain` and the page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/target.h"
#include "db/history.h"

namespace diapason {

// A part that cannot be derived is empty (the schedule of a failed record may not lower), and `problem` says why.
struct Explanation {
  TuningRecord record;  // id 0: not of a history; only the names of task, workload and target are set
  ComputeDag dag;
  Schedule schedule;
  std::vector<std::pair<std::string, int32_t>>
      configuration;                 // values of the tunable parameters; "parameter 0", ... for an unknown sketch
  std::string computation, rewrite;  // the task's dag; the rewritten dag, if the algorithm changes it
  std::string steps, loops, source, problem;
  std::optional<double> analytic_seconds;
  std::vector<std::pair<std::string, float>> features;  // by name
  struct Share {
    std::string network;
    double count = 0, share = 0;
  };
  std::vector<Share>
      shares;  // in the latency of each network that has the task, with the best records of the target and device
  std::vector<std::pair<std::string, double>>
      sketches;  // all sketches of the task with the estimates of their default configurations, the fastest first
};

// Derives the readable forms, the names of parameters and the features from `dag`, `schedule` and `record.sketch`.
void CompleteExplanation(const Target& target, const DeviceFacts& facts, Explanation* explanation);

// NotFound: there is no record of this id. Other errors: the record, its workload or its schedule cannot be read.
absl::StatusOr<Explanation> ExplainRecord(History& history, int64_t id);

Json ExplanationJson(const Explanation& explanation);

}  // namespace diapason
