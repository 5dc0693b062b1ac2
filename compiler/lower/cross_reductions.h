// Reductions that several threads of a block, or lanes of a vector, make together.
#pragma once

#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_parts.h"

namespace diapason {

// Whether the stage's loops say so: a reduce loop over threads, or over the lanes of a vector innermost.
bool IsAcrossThreads(const KernelContext& kernel, int id);
bool IsAcrossLanes(const KernelContext& kernel, int id);

// Each thread reduces its share into a register, the shares meet, and every thread reads the result: on cuda the lanes
// of whole warps meet by shuffles and the warps in shared memory, elsewhere all threads meet there as a tree. Refused
// unless all spatial loops are outside all reduce loops and the thread loop is the innermost.
Stmt EmitAcrossThreads(NestParts& parts, NestEmitter& emitter, int id);

// Each lane of a vector reduces its share, the shares meet by halves. Refused unless all spatial loops are outside all
// reduce loops.
Stmt EmitAcrossLanes(NestParts& parts, NestEmitter& emitter, int id);

}  // namespace diapason
