// The tile of a reduction that blocks of a cluster, or sets of a block's threads, make together: what the rules
// cluster_reduction and stream have in common.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/sketch/rules/gpu_tile.h"

namespace diapason {

// Numbers of blocks that leave each enough to reduce, and are needed to fill the device; with them one block, whose
// threads alone share the reduction. None: a split is not worth it.
std::vector<int32_t> ClusterSizes(const Draft& draft, int stage);

bool IsGemmLike(const Draft& draft, int stage);

struct SharedTile {
  std::vector<Factor> tiles;  // elements of a block along each axis
  Factor threads;             // of a block
  Factor cluster;             // blocks
};

// Makes `stage` a tile in shared memory, of which each block of the cluster writes its share through the element-wise
// stage behind it. Returns the new stage that reduces.
int IntoSharedTile(Draft* draft, int stage, const SharedTile& tile);

// The same for threads with registers: they reduce, and store into the tile, along rows as vectors. Returns what of the
// tile's TileInfo that says; `made` as TileThreadReduction has it.
TileInfo ShareTileOfThreads(Draft* draft, int stage, const std::vector<GpuTile>& tiles, const ClusterAxis& cluster,
                            ReduceTiles* made = nullptr);

}  // namespace diapason
