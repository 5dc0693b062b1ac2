// Facts of devices that came from elsewhere.
#pragma once

#include "absl/status/status.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Looks at facts of a peer or a state file before anything is computed from them: numbers that search and lowering
// divide by, allocate by or loop over are within what any device of the kind may have, and texts are short, plain and,
// for an architecture, a word that compilers may be given. InvalidArgument names the first fact that is not and what it
// may be.
absl::Status CheckFacts(const DeviceFacts& facts, TargetKind kind);

}  // namespace diapason
