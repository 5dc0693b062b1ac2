// What both ends of an import know (service/import_model.h).
#pragma once

namespace diapason {

// Exit status of the process when its stack was used up.
inline constexpr int kExitStackOverflow = 87;
// In its temporary folder: the constants of the network, one after the other.
inline constexpr char kConstantsFile[] = "constants";

}  // namespace diapason
