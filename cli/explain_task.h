// A candidate of a network's task, chosen by hand, in readable form: what `diapason explain MODEL` shows. No history
// and no device is needed.
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

// Reads the model in a process of its own. InvalidArgument names the task, sketch or parameter that there is not, or
// the value that is not legal, with what there is.
absl::StatusOr<Explanation> ExplainTask(const api::Model& model, const CandidateChoice& choice,
                                        const api::Hooks& hooks);

}  // namespace diapason
