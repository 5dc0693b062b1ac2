// How much memory this process may have, at most.
#pragma once

#include <cstdint>

namespace diapason {

// Of the host, or of the control group that the process is in where that is less (containers). Never 0.
int64_t HostMemoryBytes();

}  // namespace diapason
