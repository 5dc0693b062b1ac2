// Reductions of one thread: where their sums are held, when these begin and when they are stored.
#pragma once

#include "compiler/lower/carried_reductions.h"
#include "compiler/lower/group_products.h"
#include "compiler/lower/nest_emitter.h"
#include "compiler/lower/nest_parts.h"

namespace diapason {

// What reductions are made with beside the parts of statements.
struct ReductionParts {
  NestParts& parts;
  CarriedReductions& carried;
  GroupHandover& handover;  // of products by warpgroups
  NestEmitter& emitter;
};

// The loops and the statement of a stage that reduces. The innermost run of reduce loops and unrolled ones accumulates
// in a buffer of its own, which the printers keep in registers; it begins with the identity, or with what a carried
// reduction has from the iteration before, and is stored when the run is done. Where loops around it reduce as well the
// sums wait in memory in between, and the first iteration does not read them. Products on tensor cores take the place
// of the innermost loops. Null after NestState::Refuse.
//
// REQUIRES: the stage is prepared (LoopValues), and the slots of its copies are named (SoftwarePipelines).
Stmt EmitReduction(const ReductionParts& with, int id);

}  // namespace diapason
