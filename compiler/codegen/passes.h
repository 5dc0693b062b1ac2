// Passes that codegen runs over a kernel's loops before it prints them.
#pragma once

#include "compiler/lower/stmt.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// Whether the value depends on what is in memory.
bool HasLoad(const Expr& e);

// Leaves vector loops that hold no vector loops, buffers or barriers (one that does becomes an unrolled loop), and no
// lets that differ between lanes (their values are put in).
Stmt NormalizeVectorLoops(const Stmt& stmt, Analyzer& analyzer);

// Replaces each kUnroll loop by copies of its body, the variable a constant in each, and simplifies. A loop whose
// copies would hold more than `max_stores` stores becomes a serial one with an unroll hint instead. `analyzer` knows
// the ranges of the variables.
Stmt ExpandUnrolled(const Stmt& stmt, Analyzer& analyzer, int64_t max_stores);

// Cuts kVectorize loops into pieces of a power of two of lanes, at most max_lanes(body): 24 is 16 + 8, 7 is 4 + 2 + 1.
// A loop of one lane is replaced by its body.
Stmt SplitVectorLoops(const Stmt& stmt, Analyzer& analyzer, const std::function<int64_t(const Stmt& body)>& max_lanes);

// Replaces the lane variable by 0 in comparisons that have one outcome for all lanes because limits and offsets are
// multiples of the number of lanes: "8 * i + lane < 1000" is the same for each of 8 lanes.
Stmt UnifyLaneConditions(const Stmt& stmt, Analyzer& analyzer);

// Statements under the same condition, one behind the other, come under one: tiles that end beyond the tensor have a
// guard for each of their vectors. A condition that no lane changes stands outside its vector loop.
Stmt GatherGuards(const Stmt& stmt);

// Loops that run statements under conditions which these loops do not change (rows of a tile that ends beyond the
// tensor) come twice: without the conditions, for where all of them hold, and as they are. Inside loops, a condition
// for each row keeps compilers from holding sums in registers and from scheduling across rows. Halide's loop
// partitioning is the same for intervals of a loop.
Stmt SplitWholeTiles(const Stmt& stmt, Analyzer& analyzer);

// Statement with variables replaced; expressions are simplified. Lets keep their variables.
Stmt SubstituteAndSimplify(const Stmt& stmt, const VarMap& map, Analyzer& analyzer);

// How an index moves with a loop variable: index = base + stride * var, base free of var.
struct Stride {
  bool affine = false;  // false: the index depends on the variable in another way
  int64_t stride = 0;
  Expr base;
};
Stride StrideOf(const Expr& index, const Expr& var, Analyzer& analyzer);

}  // namespace diapason
