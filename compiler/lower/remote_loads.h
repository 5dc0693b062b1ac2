// What a thread reads of other blocks' shared memory, asked for at once, and what goes with it.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with threads that sum the parts of several results, which the blocks of a cluster have
// (split_sums.h), loading all parts before they store the first result. Loads of another block's memory take long, and
// none may pass a store, which might be to the same address: without this, each result waits for loads of its own. What
// else these results are computed from is loaded there too, or earlier, which holds for a single result as well: inputs
// (residuals) in front of the kernel's first products, constants (biases) at its head, in at most 64 registers that its
// buffers leave free. Only in loops that are unrolled, whose conditions and indices load nothing; as long as a thread
// needs at most 128 registers for it. `next_buffer`: an id that no buffer has; the next one is left there.
KernelFunc WithRemoteLoadsAhead(KernelFunc kernel, int* next_buffer);

}  // namespace diapason
