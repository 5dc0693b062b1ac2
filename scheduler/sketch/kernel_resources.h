// What kernels take of a device, and whether that is within its limits. Only what limits need: cheap.
#pragma once

#include <cstdint>

#include "compiler/schedule/bounds.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Private tiles of a core, which are on the stack of its thread.
inline constexpr int64_t kStackBytes = 256 << 10;

// What one kernel takes of a device.
struct KernelResources {
  int root = -1;
  int64_t blocks = 1, threads = 1;
  int64_t cluster = 1;      // blocks of a cluster that share a reduction
  int64_t producers = 0;    // threads beside the others that ask for tensor copies (StepKind::kProducer)
  int64_t thread_sets = 1;  // sets of a block's threads that share it
  int64_t shared_bytes = 0;
  int64_t local_elements = 0;  // accumulators and other private buffers of a thread
  int64_t local_bytes = 0;
  int64_t unrolled = 1;  // largest product of unrolled loops of one statement
};
bool WithinLimits(const KernelResources& kernel, const Target& target, const DeviceFacts& facts);

// Adds up what the stages of one kernel take. The state outlives it.
class ResourceCount {
 public:
  // What a stage is beside its own loops.
  struct Role {
    bool is_maximum = false;   // of carried reductions (StepKind::kCarry)
    bool holds_parts = false;  // partial results of a reduction over a cluster or sets of threads
  };

  ResourceCount(const State& state, TargetKind kind, int root) : state_(state), kind_(kind) { kernel_.root = root; }
  void Add(int stage, const StageBounds& bounds, Role role);
  KernelResources Total() const;

 private:
  void AddLoops(int stage, const StageBounds& bounds);
  void AddMemory(int stage, const StageBounds& bounds, Role role);
  // Beside the accumulators of a thread: factors of products by warpgroups.
  int64_t GroupFactors(int stage, const StageBounds& bounds) const;

  const State& state_;
  const TargetKind kind_;
  KernelResources kernel_;
  int64_t tile_bytes_ = 0;  // of partial results that are summed, in the place of the operands
  int64_t apart_ = 0;       // of barriers where tiles arrive
};

}  // namespace diapason
