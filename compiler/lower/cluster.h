// The split of a reduction over the blocks of a thread-block cluster (Annotation::kCluster), over sets of the threads
// of each block (Annotation::kThreadSet), or both, as a schedule says it.
//
// A kernel with such a split computes in two phases. First each block of a cluster accumulates its share of the
// reduction (the iterations of a reduce loop that have the block's rank) in registers, as any other kernel, and stores
// its partial results, a tile of the output, in its own shared memory. Behind a barrier of the cluster, the root's
// loops write the tile: each block its share, summed over the shared memory of all blocks, with whatever the root
// computes on top. A second barrier keeps every block's shared memory alive until it has been read. With sets of
// threads, a block has as many partial results side by side. In a cluster it sums them before the first barrier;
// without one the root sums them, or what is left of many (split_sums.h), and the barriers are those of the block.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/schedule/bounds.h"

namespace diapason {

struct ClusterSplit {
  int64_t blocks = 1;       // of a cluster
  int64_t thread_sets = 1;  // of a block
  int reduction = -1;       // the stage that accumulates; -1: the kernel has no split
  int tile = -1;            // the stage that holds its results in shared memory
  int64_t parts() const { return blocks * thread_sets; }
};

// The split of the kernel of a root stage. InvalidArgument if loops are bound to the rank or to sets of threads in a
// way that has no meaning: the stages must be reduction -> tile -> root, each the only reader of the one before, the
// tile a plain copy in shared memory computed at the root's block loop, the two loops bound to the rank, of the
// reduction and of the root, must have the same extent, and copies in shared memory must hold what all sets of threads
// need.
absl::StatusOr<ClusterSplit> FindClusterSplit(const Skeleton& skeleton, const Bounds& bounds, int root);

}  // namespace diapason
