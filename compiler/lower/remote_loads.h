// What a thread reads of other blocks' shared memory, asked for at once.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with threads that sum the parts of several results, which the blocks of a cluster have
// (split_sums.h), loading all parts before they store the first result. Loads of another block's memory take long, and
// none may pass a store, which might be to the same address: without this, each result waits for loads of its own. What
// else these results are computed from (biases, residuals) is loaded there too. Only in loops that are unrolled, whose
// conditions and indices load nothing; as long as a thread needs at most 128 registers for it. `next_buffer`: an id
// that no buffer has; the next one is left there.
KernelFunc WithRemoteLoadsAhead(KernelFunc kernel, int* next_buffer);

}  // namespace diapason
