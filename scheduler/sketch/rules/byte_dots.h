// Dot products of four bytes on processors: instructions such as x86's vpdpbusd and ARM's sdot add to each lane of 32
// bits the products of four pairs of neighbouring bytes. The loops are those of any tile, with the innermost four of
// the reduction inside of it and constant columns laid out so that these four lie together; the C printer makes
// instructions of them (codegen/byte_dots.h).
#pragma once

#include <optional>

#include "scheduler/sketch/draft.h"

namespace diapason {

// The reduce axis along which a product of 8-bit integers by constant columns, summed in int32, can be made of dot
// products: the left factor has its elements side by side in memory, and their number is a multiple of kDotBytes.
// Nothing where there is none, and on GPUs.
std::optional<int> DotAxis(const Draft& draft, int stage);

// The dimension of `constant` that is indexed by that axis of the reader alone; -1 if there is none or there are
// several.
int DimensionOf(const Draft& draft, int constant, int reader, const Expr& axis);

}  // namespace diapason
