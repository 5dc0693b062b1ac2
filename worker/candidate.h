// What a runner process does with one program: load it, run it on random inputs, time it, compare it.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/runtime/device.h"
#include "compiler/runtime/executable.h"
#include "compiler/runtime/outcome.h"
#include "compiler/tensor/array.h"
#include "compiler/tensor/compute_dag.h"

namespace diapason {

namespace v1 {
class RunJob;
class RunReply;
}  // namespace v1

// Refuses times that cannot be: a kernel that did nothing, a clock that did not move. A direct evaluation needs flops /
// peak; Winograd F(4,3) saves a factor of 4 and a peak computed from base clocks may be a little low, so a fifth of it
// is allowed; a sixteenth of that where matrix units for float16 are at work. Returns why, or an empty text.
std::string ImpossibleTiming(const Timing& timing, const ComputeDag& dag, const DeviceFacts& facts);

// Measures programs on one device, one at a time. Inputs and reference outputs of the workloads seen last are kept in
// host memory, so that the second candidate of a task costs no more than its own run; each candidate gets its own fresh
// copy of the inputs on the device.
class CandidateRunner {
 public:
  // Called when a stage begins. `quiet`: the caller should return only when nothing disturbs a timing.
  using StageBegins = std::function<void(MeasureStage stage, bool quiet)>;

  // `cache_bytes`: of host memory kept for inputs and references.
  explicit CandidateRunner(Device& device, int64_t cache_bytes = int64_t{1} << 30)
      : device_(device), cache_bytes_(cache_bytes) {}

  // Never fails: what goes wrong is in the reply. `device_lost` is set after a fault that leaves the device unusable.
  v1::RunReply Run(const v1::RunJob& job, const StageBegins& stage_begins);

 private:
  // Host copies for one (workload, seed).
  struct Reference {
    std::string key;
    std::map<int, Array> inputs;  // by placeholder
    std::vector<Array> outputs;   // of the naive program; empty until needed
    int64_t bytes() const;
  };
  class Job;

  Reference& ReferenceFor(const std::string& workload, uint64_t seed);
  void Shrink();

  Device& device_;
  const int64_t cache_bytes_;
  std::list<Reference> references_;  // most recently used first
};

}  // namespace diapason
