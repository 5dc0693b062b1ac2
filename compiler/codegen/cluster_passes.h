// Thread-block clusters for devices that have none.
#pragma once

#include "compiler/lower/stmt.h"

namespace diapason {

// The same program with each kernel that has clusters as two, one behind the other: the first ends where all blocks of
// a cluster would meet, the second does the rest. What blocks read of each other's shared memory, and what they leave
// in their own for the second one, lies in a workspace between them: a buffer of the program with the id that the
// shared buffer had. Programs without clusters come back as they are. REQUIRES: of the lowering's form: a kernel's
// cluster barriers are statements of one sequence, reached through loops over blocks, ranks and threads, lets and
// allocations alone, and what one part leaves for the next is in shared memory.
LoweredProgram WithoutClusters(const LoweredProgram& program);

}  // namespace diapason
