// Local buffers as variables: which can be, and how.
#pragma once

#include <map>
#include <optional>

#include "compiler/lower/stmt.h"
#include "compiler/tensor/simplify.h"

namespace diapason {

// A local buffer cut into the pieces that are accessed: start -> number of elements, each a scalar or a vector
// variable. Pieces do not overlap; elements that are never accessed are in none.
using Slots = std::map<int64_t, int64_t>;

// The pieces of buffer `decl` in `body`, in which unrolled loops are expanded and vector loops have their final
// lengths. Nothing when an access is at no constant place, or when vectors overlap in part. Without `vectors`, each
// lane of a vector access is a scalar.
std::optional<Slots> FindSlots(const BufferDecl& decl, const Stmt& body, bool vectors, Analyzer& analyzer);

// The piece that holds element `at`. REQUIRES: it is accessed.
Slots::const_iterator SlotOf(const Slots& slots, int64_t at);

}  // namespace diapason
