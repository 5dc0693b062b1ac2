// What the guard of the search space runs over: every sketch of every task of every built-in network, with candidates
// drawn at random. Settings come from the environment, so that the same tests serve continuous integration (a few
// candidates) and bench/guard.sh (a thousand of each, in many processes).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/target.h"
#include "scheduler/space.h"
#include "tests/scheduler/sketch/dags.h"

namespace diapason::testing {

struct GuardSettings {
  int candidates = 0;         // DIAPASON_CANDIDATES: of each sketch; 0 (unset): the test's own small choice
  uint64_t seed = 1;          // DIAPASON_SEED
  int shard = 0, shards = 1;  // DIAPASON_SHARD=2/16: only each sixteenth task, from the third on
  bool full_size = false;     // DIAPASON_FULL_SIZE=1: execute the tasks as large as they are in the networks
  double seconds = 0;         // DIAPASON_SECONDS: begin no further candidate after so long; 0: no limit
  std::string task;           // DIAPASON_TASK: only tasks with this in their name
  std::string sketch;         // DIAPASON_SKETCH: only sketches with this in their name
  std::string trace;          // DIAPASON_TRACE=FILE: the candidate under way, for when it takes the process with it

  static GuardSettings FromEnvironment();
  // No part alone: neither a shard nor a name, nor a limit of time, left anything out.
  bool whole() const { return shards == 1 && seconds == 0 && task.empty() && sketch.empty(); }
};

// The tasks of all built-in networks, equal ones once, named "resnet-18/conv2d_...". Small ones are of the same
// networks with fewer channels and pixels, once with channels that vectors divide and once with odd ones.
std::vector<NamedDag> BuiltinTasks(bool full_size);

// The configuration of candidate `number` of a sketch: its default for 0, else each parameter drawn from its domain.
std::vector<int32_t> DrawCandidate(const Space& space, uint64_t seed, int number);

// "resnet-18/conv2d_3x3 gemm/tile2 candidate 5: i1.s1=4 ...", enough to run it again.
std::string Describe(const std::string& task, const Space& space, int number, absl::Span<const int32_t> configuration);

// One task with its spaces.
struct GuardTask {
  const NamedDag* task;
  std::unique_ptr<TaskSpace> space;
  std::vector<int> sketches;  // those that DIAPASON_SKETCH leaves
};

// The tasks of this process (DIAPASON_SHARD, DIAPASON_TASK) with their spaces. Fails the running test if there is a
// task without a space.
std::vector<GuardTask> TasksToGuard(const std::vector<NamedDag>& tasks, const GuardSettings& settings,
                                    const Target& target, const DeviceFacts& facts);

// Writes what is under way to the trace file and tells when the time is over.
class GuardClock {
 public:
  explicit GuardClock(const GuardSettings& settings) : settings_(settings) {}
  bool Over() const;
  void Begin(const std::string& what) const;

 private:
  const GuardSettings& settings_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// What a test of the guard went over.
struct GuardedRun {
  std::string test, target;
  const std::vector<GuardTask>& tasks;
  int64_t per_sketch = 0;  // candidates of each
  int64_t candidates = 0;  // that were compared
};

// One line for bench/guard.sh: "guard: numbers cuda: 93 tasks, 911 sketches, 1822 candidates". Fails the running test
// if there was nothing to compare (but for a shard, whose tasks may be none), or if candidates were left out without a
// failure or a limit of time.
void Conclude(const GuardSettings& settings, const GuardedRun& run);

}  // namespace diapason::testing
