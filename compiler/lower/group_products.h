// Products on tensor cores by warpgroups (wgmma): of four warps each makes 16 rows, whose factors it holds in
// registers as for mma.sync; all columns of the group come straight from shared memory, where a copy holds them
// as core matrices and a second one their low parts. Factors without low parts may have their rows in such a copy
// too, and those of 16 bits rows or columns innermost there in place of k. Factors that are to be rounded are so where
// they are loaded into registers. The products run on their own: a pipeline prepares the next step beside them, and
// where no registers have to be loaded anew, or two sets of them take turns, starts its products before these are done.
#pragma once

#include "compiler/lower/fragments.h"
#include "compiler/lower/nest_parts.h"

namespace diapason {

// What products by warpgroups and the pipeline around them leave to each other.
struct GroupHandover {
  // What the next products leave to the pipeline in `products` and `end`: the wait for their sums, or themselves too.
  enum class Defer : uint8_t { kNothing, kEnd, kProducts };
  Defer defer = Defer::kNothing;
  Stmt products, end;
  Stmt behind;     // products that run behind those which are emitted next, while these are waited for; taken
  Stmt after;      // what comes next, once the sums of those are there; taken
  Expr iteration;  // of the pipeline: which of the two buffers of low parts is read
  // Rows come through two sets of registers in turn, each for half of a step's k: products of the second half may still
  // be under way when those of the next step start.
  bool in_turns = false;
};

// All tiles of a warpgroup, written out. Null after NestState::Refuse: the stage is no product that the instruction
// makes.
Stmt EmitGroupProducts(NestParts& parts, const TileProducts& products, GroupHandover& handover);

}  // namespace diapason
