// Rewrites of single nodes, for the tests of passes.
#pragma once

#include <cstddef>

#include "../testing.h"
#include "compiler/graph/passes/network_editor.h"

namespace diapason {

// One call of a rewrite on node n; whether it changed something. Nodes that it removes are gone from the network.
inline bool RewriteNode(bool (*rewrite)(NetworkEditor&, size_t), Network& network, size_t n) {
  NetworkEditor editor(network);
  const bool changed = rewrite(editor, n);
  editor.Compact();
  return changed;
}

}  // namespace diapason
