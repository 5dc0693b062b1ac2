// Which copies into shared memory tensor copies can make (StepKind::kTensorCopy).
#pragma once

#include <optional>

#include "compiler/lower/kernel_context.h"
#include "compiler/tensor/tensor_box.h"

namespace diapason {

// The box that one tensor copy of the stage moves: a run of core matrices (StageBounds::core_row) of all its rows,
// which may be windows of images. Nullopt: its threads make it.
std::optional<TensorBox> BoxOfCopy(const KernelContext& kernel, int copy);

// Whether a warpgroup of its own asks for the copies of a stage's pipeline (StepKind::kProducer): its products read
// copies that tensor copies make, all of them, in one pipeline that runs once.
bool HasProducer(const KernelContext& kernel, int id);

}  // namespace diapason
