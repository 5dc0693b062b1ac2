// Values that are known before a kernel starts.
#pragma once

#include "compiler/tensor/expr.h"

namespace diapason {

// Whether an expression has one value for all elements of a stage: it has no variables, and loads only inputs of one
// element. `stage_of`: the Stage of a buffer.
template <typename StageOf>
bool IsInvariant(const Expr& e, const StageOf& stage_of) {
  bool invariant = true;
  Visit(e, [&](const ExprNode& node) {
    if (node.kind == ExprKind::kLoad)
      invariant &= stage_of(node.buffer).placeholder && stage_of(node.buffer).elements() == 1;
    invariant &= node.kind != ExprKind::kVar;
  });
  return invariant;
}

}  // namespace diapason
