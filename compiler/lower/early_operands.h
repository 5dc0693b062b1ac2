// Operands in front of the reductions that a kernel makes first, so that their latencies overlap instead of adding up.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same kernel with operands of its products in registers when the first barrier comes: a kernel without tensor cores
// that makes reductions of a row in all its threads (a normalization, the softmax of scores) before it multiplies the
// row by a matrix. What such a kernel copies to registers behind its first barrier is loaded at its head, constants
// before all else. Only copies of elements of inputs, or choices between such, in loops that are unrolled, whose indices
// and conditions are known there; as many as leave registers to the other statements.
// `next_buffer`: an id that no buffer has; the next one is left there.
KernelFunc WithEarlyOperands(KernelFunc kernel, int* next_buffer);

}  // namespace diapason
