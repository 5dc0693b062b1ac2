// The part of Canonicalize (passes.h) that rewrites arithmetic.
#pragma once

#include <cstddef>

#include "compiler/graph/passes/network_editor.h"

namespace diapason {

// Applies the first of these rewrites that fits node n, and says whether one did:
// - an operand that changes nothing (x + 0, x * 1, x and true, a choice that is known) makes the node its other
// operand;
// - a constant of one element beside an operand as large as the result becomes a scalar;
// - 1 / x becomes reciprocal;
// - GELU that an exporter wrote as products, a sum and erf or tanh becomes one operator;
// - constant padding in front of a convolution becomes the convolution's own;
// - matmul of two matrices becomes gemm, and constant operands of gemm lie as (depth, columns), scales multiplied in.
// What is rewritten depends on the values of constants of one element alone, never on weights.
bool CanonicalizeArithmetic(NetworkEditor& network, size_t n);

}  // namespace diapason
