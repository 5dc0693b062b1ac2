// Kernels whose threads have two roles: some ask for tensor copies, the others compute (StepKind::kProducer).
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The kernel with a warpgroup more, in which one thread is the producer; barriers of the block become those of the
// others. Where the numbers allow it, these take registers over from the producer's warpgroup. Without a producer, the
// kernel as it is.
KernelFunc WithRoles(KernelFunc kernel);

}  // namespace diapason
