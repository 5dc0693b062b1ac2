// Operations and memory traffic of a kernel, counted on its loop nest.
#pragma once

#include "compiler/lower/stmt.h"
#include "compiler/tensor/kernel_work.h"

namespace diapason {

// Conditions count as true: elements beyond the edge of a tile are counted, where tiles do not divide extents. Of a
// buffer, no more elements count than it has, and reads of one that the kernel writes do not.
KernelWork WorkOf(const KernelFunc& kernel);

}  // namespace diapason
