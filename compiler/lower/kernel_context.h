// What is known of one kernel before any statement of it is emitted: its stages, their bounds, the target, and what
// follows from these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/lower/cluster.h"
#include "compiler/schedule/bounds.h"
#include "compiler/tensor/output_place.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Immutable; refers to the skeleton, the bounds and the target, which outlive it. Positions count the leaf loops of a
// stage from the outermost on.
struct KernelContext {
  // The kernel of a root stage. `place`: of the one output, where that is a part of a larger tensor. InvalidArgument
  // for a split of its reduction that has no meaning (cluster.h).
  static absl::StatusOr<KernelContext> Create(const Skeleton& skeleton, const Bounds& bounds, const Target& target,
                                              const OutputPlace& place, int root);

  const Skeleton& skeleton;
  const State& state;
  const Bounds& bounds;
  const Target& target;
  OutputPlace place;
  int root = -1;
  int64_t threads = 1;  // of a block
  int64_t blocks = 1;   // of which each is a cluster where there are any
  ClusterSplit split;

  int64_t extent(int id, size_t position) const { return bounds.stages[id].extent[state.stage(id).order[position]]; }
  // Whether the stage's buffer is the larger tensor.
  bool IsPlaced(int id) const { return !place.whole() && state.is_output(id); }
  // Whether the stage lies in the registers of the block's threads (Memory::kLanes).
  bool IsHeldByLanes(int id) const;
  // Whether the stage's products are made by tensor cores, and by warpgroups of them: other targets run its loops.
  bool OnTensorCores(int id) const;
  bool OnWarpgroups(int id) const;
  // Whether products by warpgroups read the stage: they see its stores once these are published.
  bool IsPublished(int id) const;
  // Whether a thread keeps the stage's elements until it computes with each of them once: a conversion before that
  // would wait for them.
  bool IsReadAhead(int id) const;
  // Of the buffer of an attached stage.
  int64_t ElementsOf(int id) const;

  // Stages that are computed at a loop, producers first, and what reads a carried reduction behind the stage whose loop
  // carries it. Bulk copies are apart.
  std::vector<int> StagesAt(int id, size_t position) const;
  std::vector<int> BulkCopiesAt(int id, size_t position) const;
  // Whether a stage reads one of others; for ReadsInside: or a stage that is computed inside it does.
  bool ReadsAny(int id, const std::vector<int>& stages) const;
  bool ReadsInside(int id, int producer) const;
  // Whether the loops around the pipeline of a copy, or around the copy, have one iteration in a thread.
  bool RunsOnce(int copy) const;
  // Slots of the shared copies whose pipeline starts at a loop, 1 if none does; `last` is the loop at which they are
  // computed.
  int64_t PipelineSlots(int id, size_t position, size_t* last) const;

 private:
  bool IsAttachedAt(int child, int id, size_t position) const;
};

}  // namespace diapason
