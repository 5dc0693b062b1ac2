// Which tensors in memory copies read, as tensor copies can take them (StepKind::kTensorCopy).
#pragma once

#include <optional>

#include "compiler/schedule/state.h"
#include "compiler/tensor/tensor_box.h"

namespace diapason {

// What a copy loads, maybe only where a condition holds, and is zero elsewhere; null: it computes something else.
Expr LoadOfCopy(const Stage& copy);

// The tensor that a copy reads, in order of its last dimension first, dimensions of one element left out: its box is
// that of no copy yet. Nullopt where it is neither a tensor with strides, a whole row of units of 16 bytes, of at most
// five dimensions, nor windows over images (windows_of_copy.h).
std::optional<TensorBox> TensorOfCopy(const State& state, int copy);

}  // namespace diapason
