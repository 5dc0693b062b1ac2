// The order in which a thread's products are made.
#pragma once

#include "compiler/lower/stmt.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// Puts unrolled loops around a sum of products in registers, acc[m, n] += a[m, k] * b[n, k], into the order k, one side, the other
// side back and forth: from one product to the next only one factor changes. A multiprocessor of Ampere or later starts a
// multiply-add each cycle when one of its operands is still there from the one before; one that reads three registers takes two
// cycles. Inside is the side whose elements lie along k in memory, else the shorter one. Of 12 x 8 sums a thread, rows along
// k, 15% of the multiply-adds then read three registers (30% with the columns inside, 37% in the order of the loops). Each
// sum is still made in the order of k. `stmt` may be null; `analyzer` knows the ranges of its variables.
Stmt ZigzagProducts(const Stmt& stmt, Analyzer& analyzer);

}  // namespace diapason
