// Sums over the parts of a split reduction (cluster.h): the results of a cluster's blocks, or of a block's sets of
// threads.
#pragma once

#include "compiler/lower/nest_state.h"

namespace diapason {

// The sum, over all parts, of the tile's element at an index. REQUIRES: the kernel's reduction is split.
Expr SumOfParts(NestState& nest, const Expr& index);

// Before other blocks read a tile: the results of the block's sets of threads become one, in the place of the first.
// Null where a block has one set.
Stmt SumOfThreadSets(NestState& nest);

}  // namespace diapason
