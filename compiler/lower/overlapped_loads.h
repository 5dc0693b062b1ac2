// Loads in front of a kernel's first products, so that their latencies overlap instead of adding up.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with fewer waits: a kernel that copies one operand to shared memory by asynchronous copies, waits,
// and only then asks for the next one waits for both at once, where nothing in between needs the first one. That is a
// wait at the kernel's head (with the barrier behind it) up to which there are only such copies and stores to
// registers, and from which to the next meeting of all threads, if need be that of a loop's first iteration, there are
// only these and tensor copies.
KernelFunc WithLateWaits(KernelFunc kernel);

// The same kernel with what is computed from the results of products finding its other operands in registers: scales
// and masks of scores, which statements behind a product would load from global memory. They are loaded in front of the
// last wait before the first product of the kernel, or of an iteration of a loop that waits, constants at its head; at
// most 72 elements a thread. Only loads that run whatever the conditions are, in loops that are unrolled.
// `next_buffer`: an id that no buffer has; the next one is left there.
KernelFunc WithEarlyLoads(KernelFunc kernel, int* next_buffer);

}  // namespace diapason
