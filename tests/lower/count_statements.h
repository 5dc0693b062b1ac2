// Counts statements of loop nests.
#pragma once

#include <functional>

#include "compiler/lower/lower.h"
#include "compiler/lower/stmt.h"

namespace diapason::testing {

// Those of a tree for which a condition holds, its root included.
inline int CountStatements(const Stmt& tree, const std::function<bool(const StmtNode&)>& is) {
  int count = 0;
  Contains(tree, [&](const StmtNode& s) {
    count += is(s);
    return false;
  });
  return count;
}

inline int CountStatements(const Stmt& tree, StmtKind kind) {
  return CountStatements(tree, [kind](const StmtNode& s) { return s.kind == kind; });
}

// In all kernels of a program.
inline int CountStatements(const LoweredProgram& program, const std::function<bool(const StmtNode&)>& is) {
  int count = 0;
  for (const KernelFunc& kernel : program.kernels) count += CountStatements(kernel.body, is);
  return count;
}

}  // namespace diapason::testing
