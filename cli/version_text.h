// What `diapason --version` says.
#pragma once

#include <string>

namespace diapason {

// The version, the commit that was built ("-dirty" with changes; "unknown" without git), and how: three lines without
// the last end.
std::string VersionText();

}  // namespace diapason
