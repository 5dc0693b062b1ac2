// Facts of devices: what is assumed of those that nobody measured, and checks of those that came from elsewhere.
#pragma once

#include "absl/status/status.h"
#include "compiler/tensor/target.h"

namespace diapason {

// Bytes a second that so many cores of a processor get from memory together: as one channel and a half for one core,
// and more of the socket's channels for more cores.
double BandwidthOfCores(int cores);

// Looks at facts of a peer or a state file before anything is computed from them: numbers that search and lowering
// divide by, allocate by or loop over are within what any device of the kind may have, and texts are short, plain and,
// for an architecture, a word that compilers may be given. InvalidArgument names the first fact that is not and what it
// may be.
absl::Status CheckFacts(const DeviceFacts& facts, TargetKind kind);

}  // namespace diapason
