// How the lanes of a warp read shared memory together.
#pragma once

#include "compiler/schedule/bounds.h"
#include "compiler/tensor/target.h"

namespace diapason {

// One load by all lanes.
struct WarpLoad {
  double conflict;   // the greatest number of different addresses in one bank
  double different;  // different addresses in all
};

// Of a load from a copy in shared memory. REQUIRES: the access's producer is attached.
WarpLoad LoadOfWarp(const Skeleton& skeleton, TargetKind kind, const Bounds& bounds, const Access& access);

// Neighbours along the last dimension that one load instruction of a body can bring: 1, 2 or 4. `body`: the position
// from which on all loops of the reader are unrolled or vectorized.
double LanesOfLoad(const Skeleton& skeleton, const Bounds& bounds, const Access& access, int body);

}  // namespace diapason
