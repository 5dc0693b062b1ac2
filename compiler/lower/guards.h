// What must hold where a stage's statement runs: tiles may reach beyond loops, and regions beyond tensors.
#pragma once

#include <vector>

#include "compiler/lower/nest_state.h"

namespace diapason {

struct Guards {
  std::vector<Expr> spatial;  // the iteration is one of an element of the stage, and this thread's to compute
  std::vector<Expr> reduce;   // the iteration is one of a term
  std::vector<Expr> domain;   // the element, of a stage computed inside another one, is one of the tensor
};

// Those that do not hold everywhere. REQUIRES: the stage is prepared (LoopValues).
Guards GuardsOf(NestState& nest, int id);

// Whether a stage is a sum of products in which every factor comes from memory that is zero where an axis runs past its
// end: iterations there add nothing. Holds if each reduce axis that is padded indexes, alone, a dimension of an
// attached copy.
bool PaddingIsHarmless(const KernelContext& kernel, int id);

}  // namespace diapason
