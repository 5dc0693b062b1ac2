// Loops of prologue kernels for processors: these run when a package is loaded, and no search looks at them.
#pragma once

#include <cstdint>

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with loops that a compiler makes fast code of. `vector_bytes`: of the processor.
// - A copy that lays a constant out in tiles has an innermost loop whose places are quotients and remainders of its
//   variable: it becomes a loop over vectors that lie together on both sides.
// - A transform whose coefficients depend on quotients of the parallel loop's variable (Winograd's, of weights) chooses
//   them again for each vector: the quotients become copies of the body, each with its own coefficients, and the loop
//   is over the remainders. Results are the same to the bit.
// Kernels of another form, and those that would become very long, are returned as they are.
KernelFunc WithFasterLoops(KernelFunc kernel, int64_t vector_bytes);

}  // namespace diapason
