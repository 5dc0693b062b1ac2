#include "base/check.h"
#include "compiler/graph/passes.h"
#include "compiler/graph/passes/canonical_arithmetic.h"
#include "compiler/graph/passes/canonical_views.h"
#include "compiler/graph/passes/network_editor.h"

namespace diapason {

// Rewrites only remove nodes or make one simpler, so this ends. The first node that can be rewritten goes first.
absl::Status Canonicalize(Network& network) {
  RETURN_IF_ERROR(EliminateDeadCode(network));
  NetworkEditor editor(network);
  for (int n = editor.Next(); n >= 0; n = editor.Next())
    if (!CanonicalizeView(editor, n) && !CanonicalizeArithmetic(editor, n)) editor.Done(n);
  editor.Compact();
  return EliminateDeadCode(network);
}

}  // namespace diapason
