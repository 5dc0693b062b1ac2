// Sums of products: which types go together, and their factors.
#pragma once

#include "compiler/graph/ops/emit.h"

namespace diapason::ops {

// The type of the sums: that of the inputs, or int32 for quantised ones.
DType SumTypeOf(const OperatorArgs& args);
// Floats of one type; int64; or integers of quantised tensors: int32, and for the two factors int8 and uint8, too.
absl::Status RequireFactors(const OperatorArgs& args);
// An element as a factor: Wide, and int32 for integers of 8 bits.
Expr Factor(DagBuilder& builder, int stage, Vars indices);

}  // namespace diapason::ops
