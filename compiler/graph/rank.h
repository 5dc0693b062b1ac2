// How many dimensions tensors may have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace diapason {

// What importers refuse to go beyond. A stage has its dimensions, and those of what it reads, as axes (kMaxAxes).
inline constexpr size_t kMaxRank = 24;

// Of a tensor: far above any, and low enough that products with an element size do not overflow.
inline constexpr int64_t kMostElements = int64_t{1} << 40;

}  // namespace diapason
