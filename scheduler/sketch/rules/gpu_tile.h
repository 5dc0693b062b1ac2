// The tiles of a reduction on a GPU, "SSSRRSRS" (Ansor): what the rules that tile have in common.
#pragma once

#include <vector>

#include "scheduler/sketch/draft.h"

namespace diapason {

// Tile sizes of one spatial axis within a block, as parameters. The order of an axis is block, virtual threads,
// threads, s3, s4.
struct GpuTile {
  Factor threads, vthreads, s3, s4;
  Factor all() const { return threads * vthreads * s3 * s4; }
};

// Makes the parameters of every spatial axis of a stage; batch axes and those of extent 1 are not tiled.
std::vector<GpuTile> MakeGpuTiles(Draft* draft, int stage, const std::vector<bool>& batch);

// A reduce axis of which each block of a cluster takes every `blocks`-th tile, and one, perhaps the same, of which each
// of as many sets of a block's threads has its share; axis -1: none.
struct ClusterAxis {
  int axis = -1, set_axis = -1;
  Factor blocks, thread_sets;
  bool copies = true;  // operands are copied into shared memory, in a pipeline
};

// What a reduction's tiles add to those of its outputs: of each reduce axis R1 and R2 (without the part over blocks),
// and the stages of the pipeline.
struct ReduceTiles {
  struct Axis {
    int axis = -1;
    Factor r1, r2;
  };
  std::vector<Axis> axes;
  Factor stages;
  int inner_loop = -1;  // the innermost loop of R1, inside of a set of threads
};

// Splits and orders the loops of a reduction that is computed for one thread's tile (R0 R1 S3 R2 S4, the cluster's loop
// outside all, that over sets of threads behind R0), with parameters for the reduce axes and the stages of its
// pipeline. Returns the innermost loop of R0, where operands are copied into shared memory; -1: nothing is reduced.
// `made`, unless null, gets the parameters.
int TileThreadReduction(Draft* draft, int stage, const std::vector<GpuTile>& tiles, const ClusterAxis& cluster = {},
                        ReduceTiles* made = nullptr);

// Makes a parameter of the rows of tiles that the loop over blocks of `consumer`, in which `stage` is computed, walks
// together, where that may matter: two axes are tiled, and the operands together are more than the last-level cache
// holds. `batch` are the axes that are not tiled.
void OfferGroupsOfBlocks(Draft* draft, int stage, int consumer, int blocks, const std::vector<bool>& batch);

}  // namespace diapason
