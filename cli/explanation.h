// One candidate in readable form, from a record of a history or not: what `diapason explain` and the page show.
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

// A part that cannot be made stays empty (a record of an error may not lower), and `problem` says why.
struct Explanation {
  TuningRecord record;  // id 0: of no history, only the names of task, workload and target are set
  ComputeDag dag;
  Schedule schedule;
  std::vector<std::pair<std::string, int32_t>>
      configuration;                 // values of the tunable parameters; "parameter 0", ... for an unknown sketch
  std::string computation, rewrite;  // the task's dag; that of the algorithm, where that changes it
  std::string steps, loops, source, problem;
  std::optional<double> analytic_seconds;
  std::vector<std::pair<std::string, float>> features;  // by name
  struct Share {
    std::string network;
    double count = 0, share = 0;
  };
  std::vector<Share>
      shares;  // of the networks that hold the task, with their best records on the same target and device
  std::vector<std::pair<std::string, double>>
      sketches;  // all of the task, with the estimates of their defaults, the fastest first
};

// Derives all that follows from `dag`, `schedule` and `record.sketch`: the readable forms, the names of parameters and
// the features.
void CompleteExplanation(const Target& target, const DeviceFacts& facts, Explanation* explanation);

// NotFound for an unknown id; errors of reading the record, its workload and its schedule.
absl::StatusOr<Explanation> ExplainRecord(History& history, int64_t id);

Json ExplanationJson(const Explanation& explanation);

}  // namespace diapason
