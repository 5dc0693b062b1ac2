// Priors (Draft::Prior) of convolutions of few channels, the first layers of image networks. There all of the reduction
// is window: what neighbouring pixels share of a row of it stays in registers, and a block takes all rows of the window
// at once or has the pipeline bring the next. A search finds this late, since half of the parameters have to meet: on
// an H200 after 800 trials of the 7x7 layer of ResNet-18, 9.2 us against 13.
#pragma once

#include <vector>

#include "scheduler/sketch/draft.h"
#include "scheduler/sketch/rules/gpu_tile.h"
#include "scheduler/sketch/rules/tensor_tile.h"

namespace diapason {

// Declares the prior of a tiled reduction, if it is such a convolution [n, h, w, co] with rows of the window short
// enough to be unrolled: in the rows rewrite (compiler/schedule/rewrite_rows.h), or of 4 or more than 7 channels, which
// that rewrite leaves out. True where it was declared for windows over rows, whose copies in shared memory then want no
// padding.
bool DeclareWindowPrior(Draft* draft, int stage, const std::vector<GpuTile>& tiles, const ReduceTiles& reduce);
// The same on tensor cores: in the rows rewrite only.
bool DeclareWindowPrior(Draft* draft, int stage, const std::vector<TensorTile>& tiles, const ReduceTiles& reduce);

}  // namespace diapason
