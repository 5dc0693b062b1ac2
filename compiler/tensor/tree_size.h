// How large an expression is as a tree.
#pragma once

#include <cstdint>

#include "compiler/tensor/expr.h"

namespace diapason {

// Shared nodes count each time that they are met: what printing and walking an expression costs. Computed in time of
// its distinct nodes; `nodes` stops at a very large number.
struct TreeSize {
  int64_t nodes = 0;
  int depth = 0;
};
TreeSize TreeSizeOf(const Expr& e);

// Larger ones are not made of what comes from outside: expressions are walked as trees, by recursion. The largest
// bodies of real networks, Winograd transforms written out, have some thousand nodes.
inline constexpr int64_t kMaxTreeNodes = int64_t{1} << 20;
inline constexpr int kMaxTreeDepth = 2000;
inline bool IsTooLarge(const TreeSize& size) { return size.nodes > kMaxTreeNodes || size.depth > kMaxTreeDepth; }

}  // namespace diapason
