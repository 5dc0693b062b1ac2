// Which tensors in memory copies read, as tensor copies can take them (StepKind::kTensorCopy).
#pragma once

#include <optional>

#include "compiler/schedule/state.h"
#include "compiler/tensor/tensor_box.h"

namespace diapason {

// The tensor that a copy reads, in order of its last dimension first, dimensions of one element left out: its box is
// that of no copy yet. Nullopt where it is no tensor with strides, a whole row of units of 16 bytes, of at most five
// dimensions.
std::optional<TensorBox> TensorOfCopy(const State& state, int copy);

}  // namespace diapason
