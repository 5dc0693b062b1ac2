// Totals of rows (tensor/run_sums.h) that what comes behind a product reads.
#pragma once

#include "scheduler/sketch/draft.h"

namespace diapason {

// Those that `consumer`, which is tiled with a product, reads: its blocks compute them in shared memory, before the
// product, at the loop `block`.
void ShareRowTotals(Draft* draft, int consumer, int block, const Factor& threads);

}  // namespace diapason
