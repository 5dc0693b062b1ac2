// What the rewriters of views have in common.
#pragma once

#include <vector>

#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/expr.h"

namespace diapason {

// The body with loads of stages by their new ids, `new_id` by old id.
Expr Renumbered(const Expr& body, const std::vector<int>& new_id);

// Null if the load, of the weights of a 2-D convolution [n, h, w, co] over three reduce axes, is indexed by each of these and co alone, in any
// order; else what is wrong.
const char* WrongWithWeights(const ExprNode& weights, const Stage& convolution);

}  // namespace diapason
