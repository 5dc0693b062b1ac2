// Windows over images (im2col) that copies read, as tensor copies can take them.
#pragma once

#include <optional>

#include "compiler/schedule/state.h"
#include "compiler/tensor/tensor_box.h"

namespace diapason {

// The images that a copy of rows and columns reads, with channels last: a row is a window of them, and has its elements
// one after the other, each with all channels. What lies outside of the image is zero. The box is that of no copy yet.
// Nullopt where the copy reads anything else, or hardware cannot copy such windows.
std::optional<TensorBox> WindowsOfCopy(const State& state, int copy);

}  // namespace diapason
