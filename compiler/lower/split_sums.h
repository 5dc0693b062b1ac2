// Sums over the parts of a split reduction (cluster.h): the results of a cluster's blocks, or of a block's sets of
// threads.
#pragma once

#include "compiler/lower/nest_state.h"

namespace diapason {

// The sum of the tile's element at an index over all parts, or over what SumOfThreadSets has left of them. REQUIRES:
// the kernel's reduction is split.
Expr SumOfParts(NestState& nest, const Expr& index);

// Before a tile is read. The results of a block's many sets of threads are first summed in groups, side by side, so
// that no thread reads one after the other; before other blocks read it, they become one, in the place of the first.
// Null where nothing is summed here.
Stmt SumOfThreadSets(NestState& nest);

}  // namespace diapason
