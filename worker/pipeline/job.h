// What the parts of a pipeline pass on: requests on their way through, and what is built for them.
//
// One thread owns the state of a pipeline; its parts have no locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "diapason/v1/process.pb.h"
#include "worker/pipeline/pipeline.h"

namespace diapason::pipeline {

// Failures of a process to start, in a row, after which what waits for it is given back.
inline constexpr int kMaxStartFailures = 3;

using ProgramPtr = std::shared_ptr<const std::string>;  // shared with the cache

// The programs of a network that is being checked.
struct NetworkBuild {
  std::vector<ProgramPtr> programs;   // by program of the plan; null: not built yet
  std::vector<ProgramPtr> reference;  // by task; null for tasks that no program is of, too
  size_t missing = 0;
};

// One request on its way through.
struct Job {
  uint64_t handle = 0;
  int device = 0;
  v1::MeasureRequest request;
  Pipeline::Done done;
  std::string target, shared_target;  // with the device's own number, and without
  v1::MeasureResult result;           // filled in as stages end
  ProgramPtr program, reference;      // null: not built yet
  double build_seconds = 0;
  bool load_retried = false;
  bool finished = false;                  // its result was given
  bool probe = false;                     // ours: the reference program as candidate
  std::unique_ptr<NetworkBuild> network;  // of a request that checks one

  bool wants_reference() const {
    if (request.has_network()) return false;  // it has its own
    return request.mode() == v1::MEASURE_MODE_VERIFY || request.mode() == v1::MEASURE_MODE_TIME_AND_VERIFY;
  }
  bool built() const {
    if (network != nullptr) return network->missing == 0;
    return program != nullptr && (!wants_reference() || reference != nullptr);
  }
};
using JobPtr = std::shared_ptr<Job>;  // shared: in queues, in places and in the table of handles at once

// The reference program of a workload for a target, while it is built for all requests that are verified.
struct ReferenceBuild {
  std::string key;
  std::vector<JobPtr> waiting;
};
using ReferencePtr = std::shared_ptr<ReferenceBuild>;

struct BuildTask {
  JobPtr job;              // the candidate's program, or the request that first asked for the reference
  ReferencePtr reference;  // null for a candidate
  // Of a network, one of the two: a program of the plan, or the reference program of a task.
  int network_program = -1, network_task = -1;
  bool of_network() const { return network_program >= 0 || network_task >= 0; }
};

// The deadline of a stage whose request wants so many seconds.
inline double Timeout(const PipelineOptions& options, double wanted, double otherwise) {
  return std::min(wanted > 0 ? wanted : otherwise, options.max_timeout_seconds);
}

// "3 s", for error texts.
std::string SecondsText(double seconds);
// "text: detail", or only the text when there is none.
std::string WithDetail(const std::string& text, const std::string& detail);

}  // namespace diapason::pipeline
