// Where the elements of stages lie in their buffers.
#pragma once

#include <vector>

#include "compiler/lower/kernel_context.h"
#include "compiler/tensor/expr.h"

namespace diapason {

// Elements of a root stage's buffer, padding of its packed layout included.
int64_t StoredElements(const State& state, const Bounds& bounds, int id);

// OutputPlace::At of an index that is an expression.
Expr PlaceOf(const OutputPlace& place, const Expr& flat);

// The flat index of the element with these coordinates in the stage's buffer: packed layouts, core matrices, images of
// tiles and places in larger tensors as the schedule says. Of a buffer with slots: in the first one.
Expr FlatIndex(const KernelContext& kernel, int id, const std::vector<Expr>& indices);

}  // namespace diapason
