// Explanation of a candidate of a network's task, for `diapason explain MODEL`. Needs neither a history nor a device.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/explanation.h"
#include "diapason/model.h"

namespace diapason {

struct CandidateChoice {
  std::string target;
  std::string task;                     // its number in `diapason tasks`, or its name
  std::string sketch;                   // empty: the fallback schedule
  std::vector<std::string> parameters;  // NAME=VALUE; the others have the sketch's defaults
};

// Reads the model in a separate process. InvalidArgument: an unknown task, sketch or parameter, or an illegal value;
// the message lists the valid ones.
absl::StatusOr<Explanation> ExplainTask(const api::Model& model, const CandidateChoice& choice,
                                        const api::Hooks& hooks);

}  // namespace diapason
