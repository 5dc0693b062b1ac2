// Which copies into shared memory tensor copies can make (StepKind::kTensorCopy).
#pragma once

#include <optional>

#include "compiler/lower/kernel_context.h"
#include "compiler/tensor/tensor_box.h"

namespace diapason {

// The tensor that a copy reads, in order of its last dimension first, dimensions of one element left out: its box is
// that of no copy yet. Nullopt where it is no tensor with strides, a whole row of units of 16 bytes, of at most five
// dimensions.
std::optional<TensorBox> TensorOfCopy(const State& state, int copy);

// The box that one tensor copy of the stage moves: a run of core matrices (StageBounds::core_row) of all its rows.
// Nullopt: its threads make it.
std::optional<TensorBox> BoxOfCopy(const KernelContext& kernel, int copy);

// Whether a warpgroup of its own asks for the copies of a stage's pipeline (StepKind::kProducer): its products read
// copies that tensor copies make, all of them, in one pipeline that runs once.
bool HasProducer(const KernelContext& kernel, int id);

}  // namespace diapason
