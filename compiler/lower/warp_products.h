// Products on tensor cores by warps (mma.sync): a lane holds the sums of rows g and g + 8 and columns 2q and 2q + 1
// (tensor_intrinsic.h).
#pragma once

#include "compiler/lower/fragments.h"
#include "compiler/lower/nest_parts.h"

namespace diapason {

// All tiles of a warp, written out. Of factors in parts the tensor cores, which cut sums off, sum up to four products
// in a row along k where registers allow for those sums beside the stage's own, else float32 adds each; of others,
// whose own rounding is coarser, all. Null after NestState::Refuse: the stage is no product that the instruction makes.
Stmt EmitWarpProducts(NestParts& parts, const TileProducts& products);

}  // namespace diapason
