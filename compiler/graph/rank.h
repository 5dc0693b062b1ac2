// Dimensions of tensors: how many there may be, and how they are numbered.
#pragma once

#include <cstddef>
#include <cstdint>

namespace diapason {

// What importers refuse to go beyond. A stage has its dimensions, and those of what it reads, as axes (kMaxAxes).
inline constexpr size_t kMaxRank = 24;

// Of a tensor: far above any, and low enough that products with an element size do not overflow.
inline constexpr int64_t kMostElements = int64_t{1} << 40;

// An axis that may be counted from the end (negative), counted from the start.
inline int64_t AxisFromStart(int64_t axis, size_t rank) { return axis < 0 ? axis + static_cast<int64_t>(rank) : axis; }

}  // namespace diapason
