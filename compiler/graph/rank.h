// How many dimensions tensors may have.
#pragma once

#include <cstddef>

namespace diapason {

// What importers refuse to go beyond. A stage has its dimensions, and those of what it reads, as axes (kMaxAxes).
inline constexpr size_t kMaxRank = 24;

}  // namespace diapason
