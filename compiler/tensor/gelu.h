// The two forms of GELU as expressions: operators emit them, and printers recognize them.
#pragma once

#include "compiler/tensor/expr.h"

namespace diapason {

// x / 2 * (1 + erf(x * sqrt(1/2))).
Expr GeluByErf(const Expr& x);
// x / 2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))).
Expr GeluByTanh(const Expr& x);

}  // namespace diapason
