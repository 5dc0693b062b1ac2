// How nodes are fused where no other alternative is chosen (fusion_choices.h).
#pragma once

#include "compiler/graph/grouping.h"

namespace diapason {

// Concatenations in place where that leaves fewer kernels, or as many that write less. They are decided one by one in
// order; those whose changes are apart by few groupings, so that the effort does not grow with their number times that
// of the nodes.
// `begin`: modes that are decided already.
FusionModes DefaultFusion(const GroupingFacts& facts, FusionModes begin = {});

}  // namespace diapason
