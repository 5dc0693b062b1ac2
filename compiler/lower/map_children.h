// Rebuilds statements with other parts: the step of which passes over loop nests consist.
#pragma once

#include <functional>

#include "compiler/lower/stmt.h"

namespace diapason {

// The statement with `child` applied to the statements directly below it and `fn` to its own expressions. Returns null
// if no statement is left below it, if a condition became constant false, or if an element would be stored to itself.
// Sequences are flattened.
Stmt MapChildren(const StmtNode& stmt, const std::function<Stmt(const Stmt&)>& child,
                 const std::function<Expr(const Expr&)>& fn);

// The statement with `fn` applied to every expression of the tree. Null where MapChildren leaves nothing, and for null.
Stmt MapExprs(const Stmt& stmt, const std::function<Expr(const Expr&)>& fn);

}  // namespace diapason
