// What a runner process does with the programs of a network: assembles them, runs them together again and again, and
// compares.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/build/check_network.h"
#include "compiler/build/network_plan.h"
#include "compiler/runtime/device.h"
#include "worker/process/candidate.h"

namespace diapason {

// On one device, one network at a time. What the reference implementation gave is kept for the next request about the
// same plan and seeds, since a search for a wrong record asks many times.
class NetworkRunner {
 public:
  explicit NetworkRunner(Device& device) : device_(device) {}

  // As CandidateRunner::Run, for a job with a network: the outcome is a timing without samples, or an error.
  v1::RunReply Run(const v1::RunJob& job, const CandidateRunner::StageBegins& stage_begins);

 private:
  class Job;
  // A network with values for its constants, and what it is to give.
  struct Known {
    std::string key;
    PlannedNetwork network;
    NetworkReferences references;
  };

  Device& device_;
  std::unique_ptr<Known> known_;  // the last one; null: none
};

}  // namespace diapason
