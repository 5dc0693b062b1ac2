// The split of a reduction over the blocks of a thread-block cluster, as a schedule says it (Annotation::kCluster).
//
// A kernel with such a split computes in two phases. First each block of a cluster accumulates its share of the reduction
// (the iterations of a reduce loop that have the block's rank) in registers, as any other kernel, and stores its partial
// results, a tile of the output, in its own shared memory. Behind a barrier of the cluster, the root's loops write the tile: each
// block its share, summed over the shared memory of all blocks, with whatever the root computes on top. A second barrier
// keeps every block's shared memory alive until it has been read.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/schedule/bounds.h"

namespace diapason {

struct ClusterSplit {
  int64_t blocks = 1;  // of a cluster
  int reduction = -1;  // the stage that accumulates; -1: the kernel has no split
  int tile = -1;       // the stage that holds its results in shared memory
};

// The split of the kernel of a root stage. InvalidArgument if loops are bound to the rank in a way that has no meaning: the
// stages must be reduction -> tile -> root, each the only reader of the one before, the tile a plain copy in shared memory
// computed at the root's block loop, and the two bound loops, of the reduction and of the root, must have the same extent.
absl::StatusOr<ClusterSplit> FindClusterSplit(const Skeleton& skeleton, const Bounds& bounds, int root);

}  // namespace diapason
