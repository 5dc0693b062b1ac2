// A kernel as the sequence of its leaves: the statements that every thread runs once, one after the other, inside of
// the loops over blocks and threads, sequences, allocations and lets.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "compiler/lower/stmt.h"

namespace diapason {

// Whether a statement runs its body once, in every thread. A let whose value is in a buffer that is awaited has to wait
// itself.
bool RunsBodyOnce(const StmtNode& s, const std::function<bool(int buffer)>& awaited);

struct Leaf {
  Stmt stmt;
  std::vector<const StmtNode*>
      around;  // the statements that hold it, the outermost first; they live as long as the tree
};

// Of a kernel's body, or of an iteration of a loop; in order. Lets that load are leaves.
std::vector<Leaf> LeavesOf(const Stmt& body);

// The tree with what `leaf` returns in place of each leaf, called in order with their numbers; null leaves nothing.
Stmt MapLeaves(const Stmt& body, const std::function<Stmt(size_t number, const Stmt& leaf)>& leaf);

// The first leaf that multiplies on tensor cores; their number if none does.
size_t FirstProduct(const std::vector<Leaf>& leaves);

// Whether an expression of a leaf can be computed at the place of another leaf in front of it, but for loops inside of
// the leaf and the loop over threads that it needs: `threads`. Lets are put into the expression.
bool IsKnownAt(const Leaf& there, const Leaf& leaf, Expr* e, const StmtNode** threads);

// The tree with `wrap` applied inside the loops over blocks.
Stmt InsideBlocks(const Stmt& stmt, const std::function<Stmt(Stmt)>& wrap);

}  // namespace diapason
