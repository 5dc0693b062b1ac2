// Passes for quantised networks; as those of passes.h.
#pragma once

#include "absl/status/status.h"
#include "compiler/graph/network.h"

namespace diapason {

// dequantize and quantize become elementary operators, and products of what two dequantize give become sums of products
// of integers with the scale behind them, as ONNX Runtime does it: results may differ by one step of the quantised type
// from those in float32. Views and maxima of quantised tensors stay in integers; means, interpolations and sums
// of tensors of one scale are computed from their integers and scaled once. Products stay in float32 where scales
// are not constant, where the left factor has several, or where int32 might not hold the sums.
absl::Status FuseQuantized(Network& network);

// Factors of integer products are read in 8 bits where they are no more: constants that fit, and casts from them. A
// zero point that is taken off a left factor of 8 bits, where the right one is constant, becomes an offset of the sums,
// part of their bias where they have one.
absl::Status NarrowFactors(Network& network);

}  // namespace diapason
