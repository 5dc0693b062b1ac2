// The name of this host.
#pragma once

#include <string>

namespace diapason {

// As the kernel has it; empty if it has none.
std::string HostName();

}  // namespace diapason
