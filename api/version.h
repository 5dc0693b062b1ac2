#pragma once

namespace diapason {

// As in CMakeLists.txt; stored with each run of the tuner.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace diapason
