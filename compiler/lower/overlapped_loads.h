// Loads in front of a kernel's first products, so that their latencies overlap instead of adding up.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with fewer waits: one that copies an operand to shared memory by asynchronous copies, waits, and only
// then requests the next operand, waits for both at once. That is where
// - up to the first wait, with the barrier behind it, there are only such copies and stores to registers;
// - from there to the next meeting of all threads, if need be that of a loop's first iteration, there are only these,
//   tensor copies, and the barrier at the head of that loop.
KernelFunc WithLateWaits(KernelFunc kernel);

// The same kernel with what is computed from the results of products finding its other operands in registers: scales
// and masks of scores, which statements behind a product would load from global memory. They are loaded in front of the
// last wait before the first product of the kernel, or of an iteration of a loop that waits, constants at its head; at
// most 72 registers a thread. Only loads that run whatever the conditions are, in loops that are unrolled, and whose
// indices are not loaded themselves.
// `next_buffer`: an id that no buffer has; the next one is left there.
KernelFunc WithEarlyLoads(KernelFunc kernel, int* next_buffer);

}  // namespace diapason
