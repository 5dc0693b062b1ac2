// One candidate in readable form: a record of a history, or a candidate of a network's task. See model.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "diapason/model.h"

namespace diapason::api {

// A part that cannot be made stays empty (the schedule of a failed record may not lower), and `problem` says why.
struct Explanation {
  struct Measurement {
    double median_us = 0;
    std::vector<double> samples_us;
    int64_t runs_per_sample = 1;
    bool stopped_early = false;  // since it was clearly slower than the best
    double gflops_per_s = 0;
  };
  struct Failure {
    std::string kind, stage, text;
  };
  struct Share {  // of a network's time with its best records on the same target and device
    std::string network;
    double count = 0;  // how often the network has the task
    double share = 0;
  };
  int64_t record = 0, trial = 0;  // 0: of no history, and what only records have is not set
  std::string workload, task, target, device;
  std::string algorithm, sketch;
  std::optional<Measurement> measured;
  std::optional<Failure> failed;
  std::optional<double> predicted_us;  // by the cost model, when the candidate was chosen
  std::string verification;            // "unknown", "ok", "failed", "wrong_in_network"
  std::string verification_text;       // what was found; may be empty
  std::vector<std::pair<std::string, int32_t>>
      configuration;                  // values of the tunable parameters; "parameter 0", ... for an unknown sketch
  std::string computation;            // the task
  std::string rewrite;                // what the algorithm makes of it, where that changes it
  std::string steps;                  // of the schedule, a line each
  std::string loops, source;          // of all kernels
  std::string problem;                // why the schedule makes no program here
  std::optional<double> analytic_us;  // the analytic estimate
  std::vector<std::pair<std::string, float>> features;       // by name: what the cost model sees
  std::vector<Share> shares;                                 // the largest first
  std::vector<std::pair<std::string, double>> sketch_times;  // of a candidate's task: all its sketches, with the
                                                             // estimates of their defaults in us, the fastest first
};

// The document that `diapason explain --json` prints (docs/schema/explanation.json).
std::string ExplanationJson(const Explanation& explanation);

// NotFound: no such history or record; other errors: of reading the record, its workload and its schedule.
absl::StatusOr<Explanation> ExplainRecord(const std::string& history, int64_t record);

struct CandidateChoice {
  std::string target;
  std::string task;                           // its number in Tasks, or its name
  std::string sketch;                         // empty: the fallback schedule
  std::map<std::string, int32_t> parameters;  // by name; the others have the sketch's defaults
};
// Needs neither a history nor the device. Reads the model in a process of its own. InvalidArgument names the task,
// sketch or parameter that does not exist, or the value that is not legal, with those that are.
absl::StatusOr<Explanation> ExplainCandidate(const Model& model, const CandidateChoice& choice,
                                             const Hooks& hooks = {});

}  // namespace diapason::api
