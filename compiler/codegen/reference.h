// The reference: each stage of a dag as one plain loop nest, printed straight from its expressions with no schedule, no
// bounds inference and nothing shared with compiler/lower, so that a fault there cannot hide. One flat parallel loop
// over the elements of each stage (a GPU thread an element, on cpu up to 64 neighbours side by side); sums in double
// on cpu and in Kahan-compensated float on GPUs.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/tensor/compute_dag.h"
#include "compiler/tensor/program.h"

namespace diapason {

// Element-wise stages with a single reader are still stages of their own: memory is not spared. Buffers: the
// placeholders and outputs with their roles, every other stage a workspace.
absl::StatusOr<Program> CompileReference(const ComputeDag& dag, const Target& target);

}  // namespace diapason
