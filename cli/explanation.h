// One record of a history in readable form: what `diapason explain` and the page show.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/schedule/step.h"
#include "compiler/tensor/compute_dag.h"
#include "db/history.h"

namespace diapason {

// What can be told of a record. A part that cannot be made (an error's record may not lower) stays empty, and `problem`
// says why.
struct Explanation {
  TuningRecord record;
  ComputeDag dag;
  Schedule schedule;
  std::vector<std::pair<std::string, int32_t>>
      decisions;  // names of the holes; empty names when the sketch is not known
  std::string computation, steps, loops, source, problem;
  std::optional<double> analytic_seconds;
  std::vector<std::pair<std::string, float>> features;  // by name
  struct Share {
    std::string network;
    double count = 0, share = 0;
  };
  std::vector<Share>
      shares;  // of the networks that hold the task, with their best records on the same target and device
};

// NotFound for an unknown id; errors of reading the record, its workload and its schedule.
absl::StatusOr<Explanation> ExplainRecord(History& history, int64_t id);

nlohmann::ordered_json ExplanationJson(const Explanation& explanation);

}  // namespace diapason
