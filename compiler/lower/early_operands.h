// Operands in front of what a kernel's threads do together, so that their latencies overlap instead of adding up.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with inputs that are read behind its first barrier in registers when that comes: a kernel without
// tensor cores whose threads share sums. Behind these stand what they are needed for (a row that is normalized, and
// then the matrix that it is multiplied by; the sums of a product, and then a bias and a residual). Constants are
// loaded at the kernel's head, others where the first of them is read, so that the wait for the kernel in front stays
// where it is. Only elements that are stored to registers or to a result, or that such a store computes with, in loops
// that are unrolled, with indices and conditions that are known there; as many as leave registers to the other
// statements. `next_buffer`: an id that no buffer has; the next one is left there.
KernelFunc WithEarlyOperands(KernelFunc kernel, int* next_buffer);

}  // namespace diapason
