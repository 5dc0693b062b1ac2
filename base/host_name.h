// The name of this host.
#pragma once

#include <string>

namespace diapason {

// The name that the kernel reports; empty if there is none.
std::string HostName();

}  // namespace diapason
